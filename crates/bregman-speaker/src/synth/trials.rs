//! Trials among the held-out speakers of a synthetic corpus, targets from different sessions. Enrollment models use the
//! first utterance of every session in the first half, and are tested on every utterance of the second half.

use std::path::Path;

use super::SynthCorpus;
use crate::Result;
use crate::manifest::trials::Trials;

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
        let trials = self.divide(&self.manifest()).1.trial_list(self.config.seed);
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
