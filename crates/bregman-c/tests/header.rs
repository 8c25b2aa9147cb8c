//! The header matches the code.

use std::path::Path;

#[test]
fn the_header_matches_the_code() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let settings = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let builder = cbindgen::Builder::new().with_config(settings);
    let bindings = builder.with_src(folder.join("src/lib.rs")).generate().unwrap();
    let mut generated = Vec::new();
    bindings.write(&mut generated);
    let generated = String::from_utf8(generated).unwrap();
    let header = folder.join("include/bregman.h");
    if std::env::var_os("BREGMAN_WRITE_HEADER").is_some() {
        std::fs::write(&header, &generated).unwrap();
    }
    let committed = std::fs::read_to_string(&header).unwrap();
    assert!(
        committed == generated,
        "include/bregman.h is out of date: BREGMAN_WRITE_HEADER=1 cargo test -p bregman-c --test header"
    );
}
