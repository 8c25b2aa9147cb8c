//! Several processes that work together, as `mpirun` or `srun` started them.

use std::process::Command;
use std::str::FromStr;
use std::sync::OnceLock;

use bregman_train::{DeviceChoice, Error, Ranks};

use crate::exit::Exit;
use crate::failure::Failure;

/// The ranks that this process has joined.
static JOINED: OnceLock<Ranks> = OnceLock::new();

/// Names under which launchers tell a process how many there are: Open MPI, MPICH and Intel MPI, Slurm's `srun`.
const SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"];

/// Joins the others where a launcher started several processes; alone otherwise.
pub(crate) fn join() -> Result<Ranks, Failure> {
    let number = |name: &str| std::env::var(name).ok().and_then(|size| size.parse::<usize>().ok());
    let Some(launcher) = SIZES.into_iter().find(|name| number(name).is_some_and(|size| size > 1)) else {
        return match number("WORLD_SIZE") {
            Some(size @ 2..) => Err(Failure::mistake(
                format!("WORLD_SIZE = {size}: ranks find each other by MPI, not by torchrun's variables"),
                format!("start them with `mpirun -n {size} bregman …`"),
            )),
            _ => Ok(Ranks::ALONE),
        };
    };
    let (ranks, started) = (join_mpi(launcher)?, number(launcher).unwrap_or(1));
    if ranks.size() != started {
        return Err(Failure::mistake(
            format!("{launcher} says that {started} processes were started, but MPI sees {}", ranks.size()),
            "start them with the mpirun of the MPI that this program was built with, or with srun --mpi=pmix",
        ));
    }
    Ok(JOINED.get_or_init(|| ranks).clone())
}

#[cfg(feature = "mpi")]
fn join_mpi(_: &str) -> Result<Ranks, Failure> {
    let mpi = bregman_train::Mpi::join().map_err(|error| Failure::failed(error.to_string()))?;
    Ok(Ranks::new(mpi))
}

#[cfg(not(feature = "mpi"))]
fn join_mpi(launcher: &str) -> Result<Ranks, Failure> {
    Err(Failure::mistake(
        format!("{launcher} says that several processes were started together, but this program was built without MPI"),
        "build it with `cargo build --release -p bregman-cli --features mpi` (Debian: libopenmpi-dev, libclang-dev)",
    ))
}

/// The number of this process among those of its machine, as Open MPI, MPICH and Slurm tell it.
pub(crate) fn local_rank() -> usize {
    let names = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    if JOINED.get().is_none() { 0 } else { names.into_iter().find_map(number).unwrap_or(0) }
}

/// `--gpus`: how many GPUs of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GpuCount {
    /// All of them.
    All,
    /// So many, the first ones.
    First(usize),
}

impl FromStr for GpuCount {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(count @ 1..) => Ok(Self::First(count)),
            _ if text == "all" => Ok(Self::All),
            _ => Err("expected a number from 1 on, or all"),
        }
    }
}

/// Runs this command once for each GPU, as ranks, and tells how they ended; nothing to do where one GPU is asked for.
pub(crate) fn start_one_per_gpu(count: GpuCount) -> Result<Option<Exit>, Failure> {
    let find = |number: &usize| DeviceChoice::Cuda(*number).find().map_err(Error::from);
    let present = match count {
        GpuCount::First(count) => (0..count).try_for_each(|number| find(&number).map(drop)).map(|()| count),
        GpuCount::All => find(&0).map(|_| (0..).take_while(|number| find(number).is_ok()).count()),
    };
    let present =
        present.map_err(|error| Failure::mistake(format!("--gpus: {error}"), error.hint().unwrap_or_default()))?;
    if present == 1 {
        return Ok(None);
    }
    let program = std::env::current_exe().map_err(|error| Failure::failed(error.to_string()))?;
    let mut job = Command::new("mpirun");
    job.args(["--mca", "mpi_yield_when_idle", "1", "-n", &present.to_string()])
        .arg(program)
        .args(std::env::args_os().skip(1));
    // whoever runs this as root, as in a container, has decided that already
    job.envs(["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"].map(|name| (name, "1")));
    let ended = job.status().map_err(|error| {
        Failure::mistake(format!("mpirun cannot be started: {error}"), "install MPI (Debian: openmpi-bin)")
    })?;
    match ended.code() {
        Some(0) => Ok(Some(Exit::Done)),
        Some(code) if code == i32::from(Exit::Interrupted as u8) => Ok(Some(Exit::Interrupted)),
        _ => Err(Failure::failed("a rank has failed; what it said is above")),
    }
}

/// Makes a program that a rank starts one that works alone: the launcher's words were not meant for it.
pub(crate) fn start_alone(command: &mut Command) {
    let launchers = ["OMPI_", "PMIX_", "PMI_", "SLURM_STEP_NUM_TASKS"];
    for (name, _) in std::env::vars_os() {
        if launchers.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
}

/// The rank whose words these are, where there are several: `rank 2: `.
pub(crate) fn speaker() -> String {
    match JOINED.get() {
        Some(ranks) if !ranks.is_alone() => format!("rank {}: ", ranks.rank()),
        _ => String::new(),
    }
}

/// Before this process ends: says goodbye to the other ranks, or ends them too where this one has failed.
pub(crate) fn part(exit: Exit) {
    let Some(ranks) = JOINED.get() else { return };
    if matches!(exit, Exit::Failed | Exit::Mistake) {
        ranks.abort(i32::from(exit as u8));
    }
    ranks.leave();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_counted_or_all() {
        assert_eq!("all".parse(), Ok(GpuCount::All));
        assert_eq!("8".parse(), Ok(GpuCount::First(8)));
        assert!("0".parse::<GpuCount>().is_err() && "some".parse::<GpuCount>().is_err());
    }
}
