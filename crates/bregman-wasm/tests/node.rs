//! The module, its loader and the parts of the page that need no browser, in Node.

mod common;

use std::process::Command;

#[test]
fn the_module_gives_the_scores_and_errors_of_the_native_runtime() {
    let Some(node) = bregman_skip::program_or_skip("node", "NODE", &["node"]) else { return };
    let Some(web) = common::web() else { return };
    let folder = tempfile::tempdir().unwrap();
    let model = common::model();
    let ([first, second], score) = common::sounds(&model);
    for (name, bytes) in [("model.breg", &model), ("first.wav", &first), ("second.wav", &second)] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let output = Command::new(node)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node.mjs"))
        .arg(web)
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let native = bregman_runtime::Model::from_bytes(&model).unwrap();
    assert_eq!(report["size"].as_u64(), Some(native.embedding_size() as u64));
    assert_eq!((report["rate"].as_u64(), report["shortest"].as_u64()), (Some(16_000), Some(native.shortest() as u64)));
    assert_eq!(
        (report["threshold"].as_f64(), report["version"].as_str()),
        (Some(0.25), Some(env!("CARGO_PKG_VERSION")))
    );
    let number = |key: &str| report[key].as_f64().unwrap();
    assert!((number("score") - score).abs() <= 1e-4, "{} against {score}", number("score"));
    assert!((number("self") - 1.0).abs() <= 1e-6);
    let reasons = ["model file", "shorter than one window", "not finite", "embeddings of", "model is NULL"];
    for (error, reason) in report["errors"].as_array().unwrap().iter().zip(reasons) {
        assert!(error.as_str().unwrap().contains(reason), "{error} without {reason}");
    }
}

#[test]
fn the_parts_of_the_page_work_without_a_browser() {
    let Some(node) = bregman_skip::program_or_skip("node", "NODE", &["node"]) else { return };
    let folder = env!("CARGO_MANIFEST_DIR");
    let output =
        Command::new(node).arg(format!("{folder}/tests/parts.mjs")).arg(format!("{folder}/web")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
