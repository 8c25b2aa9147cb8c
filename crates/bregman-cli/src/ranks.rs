//! Several processes that work together, as `mpirun` or `srun` started them.

use std::process::Command;
use std::sync::OnceLock;

use bregman_train::Ranks;

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
    let ranks = join_mpi(launcher)?;
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
