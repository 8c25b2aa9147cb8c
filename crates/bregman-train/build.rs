//! Puts the files of `recipes/` into the program: a table of their names and texts for `src/config/built_in.rs`.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    // Asked at run time: a target folder that moved with its checkout keeps the path it was compiled with.
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let recipes = package.join("../../recipes").canonicalize()?;
    println!("cargo::rerun-if-changed={}", recipes.display());
    let mut files = Vec::new();
    collect(&recipes, &mut files)?;
    files.sort_by_key(|path| path.with_extension("")); // by name: `adabreg` before `adabreg-fixed`
    let entry = |path: &PathBuf| {
        let name = path.strip_prefix(&recipes).expect("it was found below").with_extension("");
        let name = name.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/");
        format!("BuiltIn {{ name: {name:?}, text: include_str!({path:?}) }},\n")
    };
    let table = format!("&[\n{}]\n", files.iter().map(entry).collect::<String>());
    fs::write(Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join("recipes.rs"), table)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    Ok(())
}
