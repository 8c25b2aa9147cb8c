//! `--gpus`: one process for each GPU of this machine, started, watched and ended together.

use std::net::TcpListener;
use std::process::{Child, Command, ExitStatus};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bregman_train::{DeviceChoice, Error};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::signals::stop_on_signals;

/// How many GPUs of this machine.
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
    let stop = stop_on_signals("stopping all ranks with a checkpoint")?;
    let start = |rank: usize, port: u16| {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1)).envs(place(rank, present, port));
        command
    };
    run_together(present, start, &stop).map(Some)
}

/// The environment variables that `torchrun` would set for the process.
fn place(rank: usize, size: usize, port: u16) -> [(&'static str, String); 5] {
    let [rank, size] = [rank, size].map(|number| number.to_string());
    [
        ("RANK", rank.clone()),
        ("LOCAL_RANK", rank),
        ("WORLD_SIZE", size),
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", port.to_string()),
    ]
}

/// How long the others may go on when one has failed: it may have told them, and they may be saying why.
const GRACE: Duration = Duration::from_secs(10);

/// Starts the ranks and waits for all of them. Where one fails the others end, too; where this process is asked to
/// stop, all are asked.
fn run_together(count: usize, start: impl Fn(usize, u16) -> Command, stop: &AtomicBool) -> Result<Exit, Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("the ranks cannot be started: {error}"));
    let mut ranks = Ended::default();
    let port = free_port().map_err(failed)?;
    for rank in 0..count {
        ranks.running.push((rank, start(rank, port).spawn().map_err(failed)?));
    }
    let (mut asked, mut since_failure) = (false, None);
    while !ranks.running.is_empty() {
        std::thread::sleep(Duration::from_millis(50));
        ranks.look();
        if stop.load(Ordering::Relaxed) && !std::mem::replace(&mut asked, true) {
            for (_, child) in &ranks.running {
                let _ = Command::new("kill").arg(child.id().to_string()).status(); // SIGTERM
            }
        }
        if ranks.failed.is_some() && since_failure.get_or_insert_with(Instant::now).elapsed() > GRACE {
            ranks.kill();
        }
    }
    match &ranks.failed {
        Some((Exit::Mistake, _)) => Ok(Exit::Mistake), // that rank has named it
        Some((_, how)) => Err(Failure::failed(format!(
            "{how}; the other ranks were ended. The last checkpoint is whole: the same command with --resume goes on"
        ))),
        None if ranks.interrupted => Ok(Exit::Interrupted),
        None => Ok(Exit::Done),
    }
}

/// The ranks that are running, and how the others have ended. Nobody is left behind.
#[derive(Default)]
struct Ended {
    running: Vec<(usize, Child)>,
    /// Why the first that failed has ended, and in words.
    failed: Option<(Exit, String)>,
    interrupted: bool,
}

impl Ended {
    fn look(&mut self) {
        let Self { running, failed, interrupted } = self;
        let with = |status: ExitStatus, exit: Exit| status.code() == Some(i32::from(exit as u8));
        running.retain_mut(|(rank, child)| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) if status.success() => false,
            Ok(Some(status)) if with(status, Exit::Interrupted) => {
                *interrupted = true;
                false
            }
            Ok(Some(status)) => {
                let exit = if with(status, Exit::Mistake) { Exit::Mistake } else { Exit::Failed };
                failed.get_or_insert_with(|| (exit, format!("rank {rank} has failed ({status})")));
                false
            }
            Err(error) => {
                failed.get_or_insert_with(|| (Exit::Failed, format!("rank {rank} is lost ({error})")));
                false
            }
        });
    }

    fn kill(&mut self) {
        for (_, child) in &mut self.running {
            let _ = child.kill(); // it may have ended meanwhile
            let _ = child.wait();
        }
        self.running.clear();
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port whose next one nobody listens at: there the ranks will meet.
fn free_port() -> std::io::Result<u16> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    Ok(port - 1)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn shell(scripts: &'static [&'static str]) -> impl Fn(usize, u16) -> Command {
        move |rank, port| {
            let mut command = Command::new("sh");
            command.args(["-c", scripts[rank]]).envs(place(rank, scripts.len(), port));
            command
        }
    }

    #[test]
    fn gpus_are_counted_or_all() {
        assert_eq!("all".parse(), Ok(GpuCount::All));
        assert_eq!("8".parse(), Ok(GpuCount::First(8)));
        assert!("0".parse::<GpuCount>().is_err() && "some".parse::<GpuCount>().is_err());
    }

    #[test]
    fn ranks_that_finish_or_stop_say_so() {
        let go = AtomicBool::new(false);
        let place = "test $WORLD_SIZE = 2 && test $RANK = $LOCAL_RANK && test $MASTER_PORT -gt 1";
        let scripts: &'static [&'static str] = Box::leak(Box::new([place, place]));
        assert_eq!(run_together(2, shell(scripts), &go).unwrap(), Exit::Done);
        assert_eq!(run_together(2, shell(&["exit 4", "exit 4"]), &go).unwrap(), Exit::Interrupted);
    }

    #[test]
    fn a_rank_that_fails_ends_the_others_and_is_named() {
        let began = Instant::now();
        let failure =
            run_together(3, shell(&["exec sleep 600", "kill -9 $$", "exec sleep 600"]), &AtomicBool::new(false));
        let failure = format!("{:?}", failure.unwrap_err());
        assert!(failure.contains("rank 1") && failure.contains("--resume"), "{failure}");
        assert!(began.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_mistake_of_the_user_ends_as_one_and_not_as_a_run_to_resume() {
        for scripts in [&["exit 2", "sleep 1; exit 1"], &["exit 2", "exit 2"]] {
            assert_eq!(run_together(2, shell(scripts), &AtomicBool::new(false)).unwrap(), Exit::Mistake);
        }
    }

    #[test]
    fn a_request_to_stop_reaches_every_rank() {
        let stop = AtomicBool::new(true);
        let wait = "trap 'exit 4' TERM; while :; do sleep 0.05; done";
        let scripts: &'static [&'static str] = Box::leak(Box::new([wait, wait]));
        assert_eq!(run_together(2, shell(scripts), &stop).unwrap(), Exit::Interrupted);
    }
}
