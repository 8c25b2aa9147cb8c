//! A CSV file that someone wrote: our manifest columns, at least `speaker` and `path`; paths count from the file's
//! folder.

use std::path::Path;

use crate::manifest::{Manifest, Utterance};
use crate::{Error, Result};

pub(super) fn find(file: &Path) -> Result<Vec<Utterance>> {
    if file.is_dir() {
        return Err(Error::format(file, "this is a folder; `csv` reads one CSV file with the columns speaker,path"));
    }
    let mut utterances = Manifest::read(file, None)?.utterances;
    utterances.iter_mut().for_each(|utterance| utterance.seconds = None); // measured again: the list may be wrong, or for another file
    Ok(utterances)
}
