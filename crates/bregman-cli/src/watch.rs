//! A run on the terminal: a bar with sparsity against target, and a line per epoch.

use bregman_speaker::Progress;
use bregman_train::{EpochRecord, Observer, Precision, StepRecord};
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::{Bar, say};

/// Draws a run on standard error. Where that is not a terminal there is no bar, but the lines are printed all the same.
pub(crate) struct Watch {
    bar: ProgressBar,
    preparing: Bar,
}

impl Watch {
    pub(crate) fn new(title: &str) -> Self {
        let style = ProgressStyle::with_template("{prefix} {bar:24} {human_pos}/{human_len} eta {eta}  {wide_msg}");
        let bar = ProgressBar::no_length().with_prefix(title.to_owned());
        Self {
            bar: bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())),
            preparing: Bar::new("features"),
        }
    }

    fn line(&self, text: &str) {
        if self.bar.is_hidden() { say(text) } else { self.bar.println(text) }
    }
}

impl Observer for Watch {
    fn preparing(&self) -> &dyn Progress {
        &self.preparing
    }

    fn device(&self, description: &str, precision: Precision) {
        self.line(&format!("device: {description}, {precision}"));
    }

    fn plan(&self, text: &str) {
        self.line(&format!("plan: {text}"));
    }

    fn begin(&self, step: u64, total: u64) {
        self.preparing.clear();
        self.line(&format!("steps: {step} of {total} taken"));
        self.bar.set_length(total);
        self.bar.set_position(step);
        self.bar.reset_eta();
    }

    fn step(&self, record: &StepRecord) {
        let target = record.target.map_or(String::new(), |target| format!(" → {:.1}", 100.0 * target));
        let lambda = record.lambda.map_or(String::new(), |lambda| format!("  λ {lambda:.3}"));
        let sparsity = 100.0 * record.sparsity;
        let speed = record.utterances_per_second;
        self.bar
            .set_message(format!("sparse {sparsity:.2}{target} %{lambda}  loss {:.3}  {speed:.0} utt/s", record.loss));
        self.bar.set_position(record.step);
    }

    fn epoch(&self, record: &EpochRecord, best: bool) {
        let percent = |share: f64| format!("{:.2} %", 100.0 * share);
        let validation = match (record.validation_loss, record.validation_accuracy) {
            (Some(loss), Some(accuracy)) => format!("  validation loss {loss:.3} accuracy {}", percent(accuracy)),
            _ => String::new(),
        };
        let eer = record.eer.map_or(String::new(), |eer| format!("  EER {}", percent(eer)));
        let mark = if best { "  best" } else { "" };
        let (loss, accuracy) = (record.train_loss, percent(record.train_accuracy));
        self.line(&format!(
            "epoch {:>3}  sparse {}  loss {loss:.3} accuracy {accuracy}{validation}{eer}{mark}",
            record.epoch,
            percent(record.sparsity)
        ));
    }

    fn warning(&self, text: &str) {
        self.line(&format!("warning: {text}"));
    }
}

/// A rank that does not lead: says where it computes, and nothing else.
pub(crate) struct Follower;

impl Observer for Follower {
    fn device(&self, description: &str, precision: Precision) {
        say(&format!("device: {description}, {precision}"));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
