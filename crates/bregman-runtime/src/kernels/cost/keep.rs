//! Costs on disk, one file per CPU, instructions and version of the program in the user's cache folder. Nothing depends
//! on it: a folder that cannot be written or a file that was damaged means measuring, as without it.

use std::path::{Path, PathBuf};

use bregman_base::files::{read_text, user_cache, write_unsynced};
use bregman_base::hash::Fnv;
use serde::{Deserialize, Serialize};

use super::KernelCosts;
use crate::kernels::Instructions;

/// More than any such file has.
const MAX_BYTES: u64 = 1 << 16;

/// What a file holds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// What they were measured on, and by which program.
    of: String,
    costs: KernelCosts,
}

pub(super) fn kept(instructions: Instructions) -> Option<KernelCosts> {
    kept_in(&user_cache()?, &machine(instructions))
}

pub(super) fn keep(instructions: Instructions, costs: &KernelCosts) {
    if let Some(folder) = user_cache() {
        keep_in(&folder, machine(instructions), costs);
    }
}

fn kept_in(folder: &Path, machine: &str) -> Option<KernelCosts> {
    let text = read_text(&file(folder, machine), MAX_BYTES).ok()?;
    let kept: Kept = serde_json::from_str(&text).ok()?;
    (kept.of == machine && kept.costs.is_plausible()).then_some(kept.costs)
}

fn keep_in(folder: &Path, machine: String, costs: &KernelCosts) {
    let file = file(folder, &machine);
    let Ok(text) = serde_json::to_string_pretty(&Kept { of: machine, costs: *costs }) else { return };
    let _ = std::fs::create_dir_all(folder); // a cache that cannot be written is none
    let _ = write_unsynced(&file, text);
}

fn file(folder: &Path, machine: &str) -> PathBuf {
    let mut hash = Fnv::default();
    hash.add(machine.as_bytes());
    folder.join(format!("costs-{:016x}.json", hash.finish()))
}

/// The CPU's name, the instructions and the version of the program. Not the number of threads: each has caches of its
/// own, and those are what the costs depend on.
fn machine(instructions: Instructions) -> String {
    format!("{}, {instructions:?}, bregman {}", cpu(), env!("CARGO_PKG_VERSION"))
}

#[cfg(target_arch = "x86_64")]
fn cpu() -> String {
    use std::arch::x86_64::__cpuid;
    #[expect(unused_unsafe, reason = "older compilers do not know that every x86-64 has it")]
    // SAFETY: every x86-64 CPU has the instruction.
    let leaf = |leaf: u32| unsafe { __cpuid(leaf) };
    let model = leaf(1).eax; // virtual machines give different CPUs one name
    if leaf(0x8000_0000).eax < 0x8000_0004 {
        return format!("{model:x}");
    }
    let words = (0x8000_0002..=0x8000_0004).map(leaf).flat_map(|leaf| [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx]);
    let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).take_while(|&byte| byte != 0).collect();
    format!("{} {model:x}", String::from_utf8_lossy(&bytes).trim())
}

/// What Linux says of the first core; elsewhere machines with the same home are taken to be alike.
#[cfg(not(target_arch = "x86_64"))]
fn cpu() -> String {
    let text = read_text(Path::new("/proc/cpuinfo"), 1 << 20).unwrap_or_default();
    let of_the_model = |line: &&str| line.starts_with("CPU ") || line.starts_with("model name");
    let first = text.split("\n\n").next().unwrap_or_default();
    format!("{} {}", std::env::consts::ARCH, first.lines().filter(of_the_model).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::super::BlockCosts;
    use super::*;

    #[test]
    fn costs_are_kept_for_the_machine_that_they_were_measured_on() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("deep");
        let strips = BlockCosts { row: 10.0, ..KernelCosts::BUILT_IN.strips };
        let costs = KernelCosts { strips, ..KernelCosts::BUILT_IN };
        keep_in(&deep, "one".to_owned(), &costs);
        assert_eq!(kept_in(&deep, "one"), Some(costs));
        assert_eq!(kept_in(&deep, "another"), None);
        assert_ne!(machine(Instructions::Scalar), machine(Instructions::Avx2));
    }

    #[test]
    fn a_file_that_is_damaged_or_of_another_machine_is_none() {
        let folder = tempfile::tempdir().unwrap();
        keep_in(folder.path(), "one".to_owned(), &KernelCosts::BUILT_IN);
        let path = file(folder.path(), "one");
        let sound = std::fs::read_to_string(&path).unwrap();
        for damaged in ["", "{}", &sound[..40], &sound.replace("one", "two"), &sound.replace("1.0", "1e300")] {
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(kept_in(folder.path(), "one"), None, "{damaged}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_no_failure() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "no folder").unwrap();
        keep_in(&file.join("below"), "one".to_owned(), &KernelCosts::BUILT_IN);
        assert_eq!(kept_in(&file.join("below"), "one"), None);
    }
}
