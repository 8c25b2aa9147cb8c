//! SIGKILL at any moment of a training: continued, it ends as the unbroken run did.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use crate::common::{command, errors, success};
use crate::run::{Place, assert_continues, saved};
use crate::trace::{CALLS, Injection, calls, is_here, traced};

/// When the process is killed.
#[derive(Debug)]
enum Moment<'a> {
    /// After this long.
    After(Duration),
    /// As soon as the run folder has an entry of this name: inside a save.
    With(&'a str),
    /// As it makes this system call for the so-manieth time.
    Call(&'a str, usize),
}

/// Begins or continues the run, from where it was saved, and kills it then; false if it had finished before.
fn kill(place: &Place, run: &Path, moment: &Moment) -> bool {
    let saved = saved(run);
    let (killed, said) = match moment {
        Moment::Call(call, number) => {
            let output = traced(place, &Injection::Kill(call, *number), &place.train(run));
            (output.status.code().is_none(), errors(&output))
        }
        _ => kill_from_outside(place, run, moment),
    };
    assert_continues(saved, &said, &format!("{moment:?}"));
    killed
}

/// As [`kill`], and what it wrote to standard error.
fn kill_from_outside(place: &Place, run: &Path, moment: &Moment) -> (bool, String) {
    let said = place.dir.path().join("said");
    let mut command = command(&place.train(run));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&said).unwrap());
    let mut child = command.spawn().unwrap();
    let began = Instant::now();
    let due = || match moment {
        Moment::After(time) => began.elapsed() >= *time,
        Moment::With(name) => run.join(name).exists(),
        Moment::Call(..) => unreachable!("killed by strace"),
    };
    while !due() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_micros(50));
    }
    let running = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    (running, std::fs::read_to_string(said).unwrap())
}

/// Numbers in [0, 1) that differ from run to run, and are printed so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let seed = std::env::var("BREGMAN_TORTURE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed
            .unwrap_or_else(|| SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos().into());
        println!("BREGMAN_TORTURE_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[test]
fn a_run_killed_inside_its_saves_and_between_them_ends_as_an_unbroken_one() {
    let place = Place::new(6, 2);
    let run = place.dir.path().join("broken");
    let mut random = Random::new();
    let saves = ["last.new", "best.new", "best.old", "top", "average.new"];
    let moments = saves.map(Moment::With).into_iter().chain([Moment::After(Duration::from_millis(300))]);
    let mut kills = 0;
    for moment in moments {
        kills += u32::from(kill(&place, &run, &moment));
        if random.next() < 0.5 {
            kills += u32::from(kill(&place, &run, &Moment::After(Duration::from_millis(150))));
        }
    }
    assert!(kills >= 3, "it was killed {kills} times only");
    place.finish(&run, &format!("after {kills} kills"));
}

#[test]
#[ignore = "takes minutes: tools/torture"]
fn a_run_killed_at_any_of_its_renames_continues_where_it_was_saved() {
    if !is_here() {
        return;
    }
    let place = Place::new(2, 1);
    let run = place.dir.path().join("renaming");
    let numbers = calls(&place, &place.train(&run))["rename"].clone();
    for &number in &numbers {
        std::fs::remove_dir_all(&run).unwrap();
        let moment = Moment::Call("rename", number);
        assert!(kill(&place, &run, &moment), "{moment:?}");
        place.finish(&run, &format!("{moment:?}"));
    }
    println!("killed at each of {} renames", numbers.len());
}

#[test]
#[ignore = "takes minutes: tools/torture"]
fn two_hundred_kills() {
    let wanted: u32 = std::env::var("BREGMAN_KILLS").map_or(200, |number| number.parse().unwrap());
    let place = Place::new(6, 2);
    let mut random = Random::new();
    let numbers = is_here().then(|| calls(&place, &place.train(&place.dir.path().join("counted"))));
    let began = Instant::now();
    success(&place.bregman(&place.train(&place.dir.path().join("timed"))));
    let takes = began.elapsed();
    let (mut kills, mut by_call, mut runs) = (0, 0, 0);
    while kills < wanted {
        let run = place.dir.path().join(format!("run-{runs}"));
        let mut history = Vec::new();
        // several times in one run, each from where the one before left it
        for _ in 0..8 {
            let call = CALLS[(random.next() * CALLS.len() as f64) as usize];
            let numbers = numbers.as_ref().and_then(|numbers| numbers.get(call));
            let moment = match numbers {
                Some(numbers) if random.next() < 0.6 => {
                    let at = (random.next() * numbers.len() as f64) as usize;
                    Moment::Call(call, *numbers.iter().nth(at).unwrap())
                }
                _ => Moment::After(takes.mul_f64(random.next())),
            };
            let at_call = matches!(moment, Moment::Call(..));
            let killed = kill(&place, &run, &moment);
            history.push(moment);
            if !killed {
                break; // it has finished
            }
            kills += 1;
            by_call += u32::from(at_call);
        }
        place.finish(&run, &format!("after {history:?}"));
        std::fs::remove_dir_all(&run).unwrap();
        runs += 1;
    }
    assert!(numbers.is_none() || by_call > wanted / 10, "strace killed it {by_call} times only");
    println!("{kills} kills, {by_call} of them at a system call, in {runs} runs: all ended as the unbroken one");
}
