//! Trials among the held-out speakers of a synthetic corpus.
//!
//! Targets are pairs of one speaker from *different* sessions, so that the channel never helps; as many nontargets are
//! drawn from the seed. Enrollment models use the first utterance of every session in the first half, and are tested on
//! every utterance of the second half.

use std::path::Path;

use super::SynthCorpus;
use crate::Result;
use crate::Rng;
use crate::manifest::trials::Trials;

/// If there are more target trials, this many are drawn.
const MAX_TARGETS: usize = 20_000;

/// The lists for the held-out speakers, as text.
pub(super) struct TrialLists {
    pub(super) trials: String,
    pub(super) enroll: String,
    pub(super) trials_multi: String,
}

impl SynthCorpus {
    /// Trials between utterances of held-out speakers, half of them targets.
    ///
    /// # Errors
    /// Fewer than two speakers or sessions.
    pub fn trials(&self) -> Result<Trials> {
        Trials::parse(self.lists().trials.as_bytes(), Path::new("synthetic trials"))
    }

    fn name(&self, (speaker, number): (usize, usize)) -> String {
        format!("s{speaker:05}/{:02}-{number:03}.wav", number / self.config.per_session)
    }

    pub(super) fn lists(&self) -> TrialLists {
        let test: Vec<usize> = (0..self.config.speakers).filter(|&speaker| self.is_held_out(speaker)).collect();
        let (per_session, count) = (self.config.per_session, self.config.utterances);
        let mut rng = Rng::keyed(&[self.config.seed, 5]);
        let mut targets: Vec<_> = test
            .iter()
            .flat_map(|&speaker| (0..count).flat_map(move |a| (a + 1..count).map(move |b| (speaker, a, b))))
            .filter(|(_, a, b)| a / per_session != b / per_session)
            .collect();
        rng.shuffle(&mut targets);
        targets.truncate(MAX_TARGETS);
        let mut trials = String::new();
        for &(speaker, a, b) in &targets {
            trials += &format!("1 {} {}\n", self.name((speaker, a)), self.name((speaker, b)));
            if test.len() > 1 {
                let own = speaker - test[0];
                let other = test[(own + 1 + rng.below(test.len() - 1)) % test.len()];
                trials += &format!("0 {} {}\n", self.name((speaker, a)), self.name((other, rng.below(count))));
            }
        }
        let half = count.div_ceil(per_session) / 2 * per_session;
        let (mut enroll, mut trials_multi) = (String::new(), String::new());
        for &speaker in &test {
            let names: Vec<String> =
                (0..half).step_by(per_session).map(|number| self.name((speaker, number))).collect();
            enroll += &format!("s{speaker:05}-enroll {}\n", names.join(" "));
            for &other in &test {
                for number in half..count {
                    let label = u8::from(speaker == other);
                    trials_multi += &format!("s{speaker:05}-enroll {} {label}\n", self.name((other, number)));
                }
            }
        }
        TrialLists { trials, enroll, trials_multi }
    }
}
