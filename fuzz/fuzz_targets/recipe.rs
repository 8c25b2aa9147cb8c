//! Any bytes as a recipe, its base and settings on the command line: an error, or an experiment that survives being
//! saved in a run and read again.
#![no_main]

use bregman_fuzz::{files, put};
use bregman_train::Experiment;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [recipe, base, settings] = files(data);
    let recipe = put("recipe.toml", recipe);
    put("base.toml", base);
    let settings = String::from_utf8_lossy(settings);
    let settings: Vec<&str> = settings.lines().collect();
    if let Ok(experiment) = Experiment::read(&[recipe], &settings) {
        let saved = Experiment::parse(&experiment.to_toml(), "saved", &[] as &[&str]).expect("it was written by us");
        assert_eq!(saved, experiment);
    }
});
