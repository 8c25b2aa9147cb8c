//! What a launcher tells a process that it starts as one of several, in variables of the environment.

use crate::failure::Failure;

/// How `srun` tells a process how many there are.
const SLURM: &str = "SLURM_STEP_NUM_TASKS";

/// Names under which launchers tell a process how many there are: Open MPI, MPICH and Intel MPI, Slurm's `srun`.
const MPI_SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", SLURM];
const SIZES: [&str; 4] = ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", SLURM];
const RANKS: [&str; 4] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];
const LOCAL_RANKS: [&str; 4] = ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];

/// `torchrun`'s default port.
const USUAL_PORT: u16 = 29_500;

/// The environment of a process.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// How this process finds those that were started with it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meeting {
    /// There are none.
    Alone,
    /// By MPI, of which the launcher is a part.
    Mpi { launcher: &'static str, size: usize },
    /// At an address, as `torchrun` gives one: rank 0 listens there.
    Address { rank: usize, size: usize, address: String },
}

impl Meeting {
    /// `with_mpi`: whether this program can join MPI's processes. Where it cannot, `MASTER_ADDR` serves those, too. All
    /// that `torchrun` says comes first: `srun` or `mpirun` may have started `torchrun`.
    pub(super) fn read(environment: Environment<'_>, with_mpi: bool) -> Result<Self, Failure> {
        let number = |name: &str| environment(name)?.parse::<usize>().ok();
        let first = |names: &[&'static str]| names.iter().find_map(|&name| number(name));
        let leader = environment("MASTER_ADDR").filter(|address| !address.is_empty());
        let (size, rank) = (own_number(environment, "WORLD_SIZE")?, own_number(environment, "RANK")?);
        let by_torchrun = size.and(rank).is_some() && leader.is_some();
        // srun says 1 of every command, also of one that needs no others; the launchers of MPI do not
        let least = |name: &str| if with_mpi && name != SLURM { 1 } else { 2 };
        let launcher = MPI_SIZES.into_iter().find_map(|name| Some((name, number(name).filter(|&n| n >= least(name))?)));
        match (launcher.filter(|_| !by_torchrun), first(&SIZES), first(&RANKS), leader) {
            (Some((launcher, size)), _, _, leader) if with_mpi || leader.is_none() => Ok(Self::Mpi { launcher, size }),
            (_, Some(size), Some(rank), _) if rank >= size => Err(Failure::mistake(
                format!("RANK = {rank}, but WORLD_SIZE = {size}"),
                "ranks count from 0: start the processes with torchrun, or set both",
            )),
            (_, Some(size), Some(rank), Some(leader)) => {
                let port = environment("MASTER_PORT").map_or(Ok(USUAL_PORT), |port| port.parse());
                // torchrun itself listens at its port
                let port = port.ok().and_then(|port: u16| port.checked_add(1)).ok_or_else(|| {
                    Failure::mistake("MASTER_PORT is not a port below 65535", "pass torchrun --master-port 29500")
                })?;
                Ok(Self::Address { rank, size, address: format!("{leader}:{port}") })
            }
            (_, Some(size @ 2..), ..) => Err(Failure::mistake(
                format!("WORLD_SIZE = {size}, but RANK or MASTER_ADDR is missing: the ranks cannot find each other"),
                "start them with torchrun, with mpirun, or with bregman train --gpus all",
            )),
            _ => Ok(Self::Alone),
        }
    }
}

/// What `torchrun`, or a user in its place, says by this variable.
fn own_number(environment: Environment<'_>, name: &str) -> Result<Option<usize>, Failure> {
    let Some(value) = environment(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    let mistake =
        || Failure::mistake(format!("{name} = {value}: expected a number"), "unset it to work in one process");
    value.parse().map(Some).map_err(|_| mistake())
}

/// What processes that a launcher of MPI started need, in a program that was built without MPI.
pub(super) fn without_mpi(launcher: &str, with_cuda: bool) -> Failure {
    let lacks = if with_cuda { ", and MASTER_ADDR, by which ranks with GPUs find each other, is not set" } else { "" };
    let hint = match (with_cuda, launcher) {
        (false, _) => {
            "build it with `cargo build --release -p bregman-cli --features mpi` (Debian: libopenmpi-dev, libclang-dev)"
        }
        (true, SLURM) => {
            "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -1), and pass srun \
             --kill-on-bad-exit=1, so that a rank that fails ends the others"
        }
        (true, _) => "set it to the machine of rank 0 for every process (Open MPI: mpirun -x MASTER_ADDR=HOST …)",
    };
    Failure::mistake(
        format!("{launcher} says that several processes were started, but this program was built without MPI{lacks}"),
        hint,
    )
}

/// The number of this process among those of its machine.
pub(super) fn local_rank(environment: Environment<'_>) -> usize {
    LOCAL_RANKS.iter().find_map(|name| environment(name)?.parse().ok()).unwrap_or(0)
}

/// Whether a launcher says something by this variable.
pub(super) fn is_launchers(name: &str) -> bool {
    let own = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];
    let prefixes = ["OMPI_", "PMIX_", "PMI_", SLURM];
    own.contains(&name) || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)], with_mpi: bool) -> Result<Meeting, Failure> {
        let find =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Meeting::read(&find, with_mpi)
    }

    #[test]
    fn launchers_are_known_by_their_variables() {
        assert_eq!(read(&[], true).unwrap(), Meeting::Alone);
        for launcher in ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"] {
            assert_eq!(read(&[(launcher, "1")], true).unwrap(), Meeting::Mpi { launcher, size: 1 });
            assert_eq!(read(&[(launcher, "1")], false).unwrap(), Meeting::Alone);
        }
        assert_eq!(read(&[("SLURM_STEP_NUM_TASKS", "1")], true).unwrap(), Meeting::Alone, "srun without --mpi");
        let open_mpi = [("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_RANK", "1")];
        let by_mpi = Meeting::Mpi { launcher: "OMPI_COMM_WORLD_SIZE", size: 4 };
        assert_eq!(read(&open_mpi, true).unwrap(), by_mpi);
        assert_eq!(read(&open_mpi, false).unwrap(), by_mpi, "which then says what to build");
        let torchrun = [("RANK", "3"), ("WORLD_SIZE", "8"), ("MASTER_ADDR", "node1"), ("MASTER_PORT", "29400")];
        let address = |rank, size, address: &str| Meeting::Address { rank, size, address: address.to_owned() };
        assert_eq!(read(&torchrun, true).unwrap(), address(3, 8, "node1:29401"));
        let slurm = [("SLURM_STEP_NUM_TASKS", "16"), ("SLURM_PROCID", "9"), ("MASTER_ADDR", "node1")];
        assert_eq!(read(&slurm, false).unwrap(), address(9, 16, "node1:29501"));
        assert_eq!(read(&slurm, true).unwrap(), Meeting::Mpi { launcher: "SLURM_STEP_NUM_TASKS", size: 16 });
        let both = [&torchrun[..], &[("SLURM_STEP_NUM_TASKS", "2"), ("SLURM_PROCID", "1")]].concat();
        assert_eq!(read(&both, true).unwrap(), address(3, 8, "node1:29401"), "srun torchrun, a task for each machine");
    }

    #[test]
    fn the_gpu_of_a_rank_is_its_number_on_its_machine() {
        let at = |variables: &[(&str, &str)]| {
            local_rank(&|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(at(&[]), 0);
        assert_eq!(at(&[("RANK", "9"), ("LOCAL_RANK", "1")]), 1, "torchrun");
        assert_eq!(at(&[("OMPI_COMM_WORLD_RANK", "5"), ("OMPI_COMM_WORLD_LOCAL_RANK", "2")]), 2, "mpirun");
        assert_eq!(at(&[("SLURM_PROCID", "7"), ("SLURM_LOCALID", "3")]), 3, "srun");
        let launchers = ["SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "WORLD_SIZE", "MASTER_PORT"];
        assert!(launchers.iter().all(|name| is_launchers(name)) && !is_launchers("HOME"));
    }

    #[test]
    fn half_of_what_a_launcher_says_is_a_mistake() {
        for variables in [
            &[("WORLD_SIZE", "2")][..],
            &[("WORLD_SIZE", "2"), ("RANK", "0")],
            &[("WORLD_SIZE", "2"), ("RANK", "2"), ("MASTER_ADDR", "here")],
            &[("WORLD_SIZE", "2"), ("RANK", "0"), ("MASTER_ADDR", "here"), ("MASTER_PORT", "65535")],
            &[("WORLD_SIZE", "2"), ("RANK", "0"), ("MASTER_ADDR", "here"), ("MASTER_PORT", "no")],
        ] {
            assert!(read(variables, true).is_err(), "{variables:?}");
        }
    }

    #[test]
    fn a_number_that_cannot_be_read_is_named() {
        for (name, variables) in [
            ("WORLD_SIZE = four", &[("WORLD_SIZE", "four")][..]),
            ("RANK = -1", &[("WORLD_SIZE", "2"), ("RANK", "-1"), ("MASTER_ADDR", "here")]),
        ] {
            let mistake = format!("{:?}", read(variables, true).unwrap_err());
            assert!(mistake.contains(name) && mistake.contains("unset"), "{mistake}");
        }
        assert_eq!(read(&[("WORLD_SIZE", ""), ("RANK", "")], true).unwrap(), Meeting::Alone);
    }

    #[test]
    fn what_a_launcher_of_mpi_needs_is_said_for_how_this_program_was_built() {
        let said = |launcher, with_cuda| format!("{:?}", without_mpi(launcher, with_cuda));
        assert!(said(SLURM, false).contains("--features mpi") && said("PMI_SIZE", false).contains("PMI_SIZE"));
        let slurm = said(SLURM, true);
        assert!(slurm.contains("MASTER_ADDR=$(scontrol") && slurm.contains("--kill-on-bad-exit=1"), "{slurm}");
        assert!(!slurm.contains("--features mpi") && said("OMPI_COMM_WORLD_SIZE", true).contains("-x MASTER_ADDR"));
    }
}
