//! Checkpoints of the reference load, parameter counts are the published ones, and wrong files are named.

mod common;

use std::collections::BTreeMap;

use bregman_nn::{
    Architecture, Array, CampPlusConfig, Checkpoint, EcapaConfig, Error, ResNetConfig, SpeechBrainEcapaConfig,
    TrainableModel, Values,
};
use bregman_tensor::Cpu;
use common::{Features, Floats, architecture, file, furthest, json, largest, load, tensors};

#[test]
fn a_pytorch_checkpoint_loads_bit_for_bit_and_embeds_as_the_reference() {
    let case = json("model_pt_expected");
    let weights = Checkpoint::read(&file(case["file"].as_str().unwrap())).unwrap();
    let recorded = case["tensors_in_pt"].as_object().unwrap();
    assert_eq!(recorded.len(), weights.tensors.len());
    for (name, record) in recorded {
        let array = &weights.tensors[name];
        let shape: Vec<usize> =
            record["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
        assert_eq!(array.shape, shape, "{name}");
        let values: Vec<f64> = match &array.values {
            Values::F32(values) => values.iter().map(|&v| f64::from(v)).collect(),
            Values::I64(values) => values.iter().map(|&v| v as f64).collect(),
        };
        let (sum, l2) = (values.iter().sum::<f64>(), values.iter().map(|v| v * v).sum::<f64>().sqrt());
        let close = |got: f64, key: &str| {
            (got - record[key].as_f64().unwrap()).abs() <= 1e-12 * l2.max(1.0) * values.len() as f64
        };
        assert!(close(sum, "sum") && close(l2, "l2"), "{name}: sum {sum}, l2 {l2}, recorded {record}");
    }
    let mut model = load(Cpu::new(), &case, &weights);
    assert_eq!(model.state().unwrap(), weights, "what was loaded is what is there");
    let x = Features::of(&case);
    let expected = tensors("model_pt_expected");
    let error = furthest(&model.embed(x.input()).unwrap(), expected.floats("eval_embedding"))
        / largest(expected.floats("eval_embedding"));
    assert!(error <= 2e-5, "relative error {error:e}");
}

#[test]
fn full_size_networks_have_the_published_parameters() {
    let recorded = json("fullsize_parameter_counts");
    for (prefix, architecture) in [
        ("ECAPA", Architecture::new(80, EcapaConfig::default())),
        ("ResNet34", Architecture::new(80, ResNetConfig::default())),
    ] {
        let (name, record) = recorded.as_object().unwrap().iter().find(|(name, _)| name.starts_with(prefix)).unwrap();
        let model = TrainableModel::new(Cpu::new(), &architecture, Some(5994), 1).unwrap();
        let parameters = model.params().all();
        let total: usize = parameters.iter().map(|parameter| parameter.param.len()).sum();
        assert_eq!(total as u64, record["with_5994_class_classifier"].as_u64().unwrap(), "{name}");
        let (classifier, rest) = parameters.split_last().unwrap();
        assert_eq!(
            rest.iter().map(|p| p.param.len()).sum::<usize>() as u64,
            record["total_parameters"].as_u64().unwrap(),
            "{name}"
        );
        assert_eq!((&*classifier.param.name, classifier.param.shape[0]), ("projection.weight", 5994));
        let listed = record["parameters"].as_object().unwrap();
        assert_eq!(listed.len(), rest.len());
        for parameter in rest {
            let shape: Vec<usize> = listed[&parameter.param.name]["shape"]
                .as_array()
                .unwrap()
                .iter()
                .map(|n| n.as_u64().unwrap() as usize)
                .collect();
            assert_eq!(parameter.param.shape, shape, "{}", parameter.param.name);
        }
    }
}

#[test]
fn initial_weights_are_pytorchs_default_and_depend_on_the_seed_only() {
    let config = EcapaConfig { channels: 64, ..EcapaConfig::default() };
    let state =
        |seed| TrainableModel::new(Cpu::new(), &Architecture::new(80, config), None, seed).unwrap().state().unwrap();
    let first = state(3);
    assert_eq!(first, state(3));
    assert_ne!(first, state(4));
    for (name, fan_in) in
        [("layer1.conv.weight", 400), ("layer1.conv.bias", 400), ("conv.weight", 192), ("linear.bias", 3072)]
    {
        let values = first.floats(name);
        let bound = 1.0 / (fan_in as f32).sqrt();
        let spread = largest(values);
        assert!(spread <= bound && spread > 0.9 * bound, "{name}: {spread} in ±{bound}");
    }
    assert!(
        first.floats("layer1.bn.weight").iter().all(|&v| v == 1.0)
            && first.floats("layer1.bn.bias").iter().all(|&v| v == 0.0)
    );
    assert!(first.floats("bn.running_var").iter().all(|&v| v == 1.0));
}

#[test]
fn a_wrong_checkpoint_is_refused_naming_the_tensor_and_changes_nothing() {
    let name = &bregman_golden::models()[0];
    let weights = tensors(name);
    let mut model = TrainableModel::new(Cpu::new(), &architecture(&json(name)), None, 5).unwrap();
    let before = model.state().unwrap();
    let victim = weights.tensors.keys().find(|name| name.ends_with(".weight")).unwrap().clone();

    let mut missing = weights.clone();
    missing.tensors.remove(&victim);
    assert!(matches!(model.load(&missing), Err(Error::Missing { tensor }) if tensor == victim));

    let mut extra = weights.clone();
    extra.tensors.insert("projection.weight".to_owned(), Array { shape: vec![1], values: Values::F32(vec![0.0]) });
    assert!(matches!(model.load(&extra), Err(Error::Extra { tensor }) if tensor == "projection.weight"));

    let mut reshaped = weights.clone();
    reshaped.tensors.get_mut(&victim).unwrap().shape.push(1);
    let message = model.load(&reshaped).unwrap_err().to_string();
    assert!(message.contains(&victim), "{message}");

    assert_eq!(model.state().unwrap(), before);
    model.load(&extra.without("projection.")).unwrap();
    assert_eq!(model.state().unwrap(), weights);
}

#[test]
fn a_models_state_is_what_its_description_lists() {
    for architecture in [
        Architecture::new(80, EcapaConfig { channels: 16, ..EcapaConfig::default() }),
        Architecture::new(80, ResNetConfig { channels: 2, ..ResNetConfig::default() }),
        Architecture::new(80, SpeechBrainEcapaConfig { channels: 16, pooled: 32, ..SpeechBrainEcapaConfig::default() }),
        Architecture::new(16, CampPlusConfig { head: 2, channels: 8, growth: 4, bottleneck: 2, embedding: 6 }),
    ] {
        let state = TrainableModel::new(Cpu::new(), &architecture, None, 1).unwrap().state().unwrap();
        let floats = state.tensors.iter().filter(|(_, array)| matches!(array.values, Values::F32(_)));
        let built: BTreeMap<String, Vec<usize>> =
            floats.map(|(name, array)| (name.clone(), array.shape.clone())).collect();
        assert_eq!(built, architecture.layers().iter().flat_map(|layer| layer.tensors()).collect());
    }
}

/// The published network: 6,848,544 parameters in 571 tensors.
#[test]
fn speechbrains_full_size_ecapa_has_its_published_parameters() {
    let architecture = Architecture::new(80, SpeechBrainEcapaConfig::default());
    let model = TrainableModel::new(Cpu::new(), &architecture, None, 1).unwrap();
    let parameters: usize = model.params().all().iter().map(|parameter| parameter.param.len()).sum();
    let expected = json("embedding_model_expected")["full_size_parameters"].as_u64().unwrap();
    assert_eq!(parameters as u64, expected);
}

#[test]
fn a_full_size_cam_has_the_published_parameters() {
    let model = TrainableModel::new(Cpu::new(), &Architecture::new(80, CampPlusConfig::default()), None, 1).unwrap();
    let parameters = model.params().all();
    assert_eq!(parameters.iter().map(|parameter| parameter.param.len()).sum::<usize>(), 6_848_544);
    assert_eq!(parameters.len(), 571);
    let weights = parameters.iter().filter(|parameter| parameter.param.role.is_weight());
    assert_eq!(weights.map(|parameter| parameter.param.len()).sum::<usize>(), 6_761_760);
}
