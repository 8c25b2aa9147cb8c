//! The class labels of a training set.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Speaker names in sorted order; the position of a name is its class label.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "BTreeSet<Arc<str>>", into = "Vec<Arc<str>>")] // sorted and distinct, whatever the file holds
pub struct Speakers {
    names: Vec<Arc<str>>,
}

impl From<BTreeSet<Arc<str>>> for Speakers {
    fn from(names: BTreeSet<Arc<str>>) -> Self {
        Self { names: names.into_iter().collect() }
    }
}

impl From<Speakers> for Vec<Arc<str>> {
    fn from(speakers: Speakers) -> Self {
        speakers.names
    }
}

impl Speakers {
    /// Number of speakers.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The label of a speaker.
    pub fn label(&self, name: &str) -> Option<u32> {
        self.names.binary_search_by(|known| (**known).cmp(name)).ok().map(|at| at as u32)
    }

    /// The names, by label.
    pub fn names(&self) -> &[Arc<str>] {
        &self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_follow_sorted_names() {
        let speakers = Speakers::from(BTreeSet::from(["zoe".into(), "ann".into()]));
        assert_eq!(
            (speakers.len(), speakers.label("ann"), speakers.label("zoe"), speakers.label("bob")),
            (2, Some(0), Some(1), None)
        );
        assert_eq!(serde_json::to_string(&speakers).unwrap(), r#"["ann","zoe"]"#);
        assert_eq!(serde_json::from_str::<Speakers>(r#"["zoe","ann","zoe"]"#).unwrap(), speakers);
    }
}
