//! Ctrl-C, SIGTERM and SIGHUP: the first asks a command to stop in order, a later one leaves at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::say;
use crate::ranks;

/// Signals closer together count as one: a service manager or `bregman sweep` may pass on what arrived already.
const ONE: Duration = Duration::from_millis(500);

/// A flag that the first signal sets; `answer` is then told to the user, by one of several ranks.
pub(crate) fn stop_on_signals(answer: &'static str) -> Result<Arc<AtomicBool>, Failure> {
    let (arrived, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup()) {
        signal_hook::flag::register(signal, arrived.clone())
            .map_err(|error| Failure::failed(format!("cannot listen for signal {signal}: {error}")))?;
    }
    let asked = stop.clone();
    std::thread::spawn(move || {
        let mut first: Option<Instant> = None;
        loop {
            std::thread::sleep(Duration::from_millis(20));
            if !arrived.swap(false, Ordering::Relaxed) {
                continue;
            }
            match first {
                None => {
                    first = Some(Instant::now());
                    asked.store(true, Ordering::Relaxed);
                    if ranks::leads() {
                        say(&format!("\n{answer}; press Ctrl-C again to leave at once"));
                    }
                }
                Some(before) if before.elapsed() > ONE => std::process::exit(i32::from(Exit::Left as u8)),
                Some(_) => {}
            }
        }
    });
    Ok(stop)
}

/// SIGHUP, unless whoever started us asked to ignore it, as `nohup` does.
#[cfg(unix)]
fn hangup() -> Option<i32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    (!ignores_hangup(&status)?).then_some(signal_hook::consts::SIGHUP)
}

#[cfg(not(unix))]
fn hangup() -> Option<i32> {
    None
}

/// Whether a process with this `/proc/PID/status` ignores signal 1.
#[cfg(unix)]
fn ignores_hangup(status: &str) -> Option<bool> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    Some(u64::from_str_radix(mask.trim(), 16).ok()? & 1 == 1)
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(unix)]
    fn the_mask_of_ignored_signals_is_read() {
        let status = |mask: &str| format!("Name:\tbregman\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\n");
        assert_eq!(super::ignores_hangup(&status("0000000000001001")), Some(true));
        assert_eq!(super::ignores_hangup(&status("0000000000001000")), Some(false));
        assert_eq!(super::ignores_hangup("Name:\tbregman\n"), None);
    }
}
