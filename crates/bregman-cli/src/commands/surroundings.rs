//! `bregman surroundings`: noise and rooms to train with, where there are no recordings of any.

use std::path::{Path, PathBuf};

use bregman_audio::{Audio, RATE, pink_noise, room_response, wav_bytes};
use bregman_base::files::{read_bytes, replace_folder, write_unsynced};
use serde::Serialize;

use super::options::WriteArgs;
use crate::Outcome;
use crate::output::{print, print_json, refuse_existing};

/// Pink noises, of ten seconds each.
const NOISES: u64 = 16;
/// Rooms, with reverberation times from 0.15 to 0.77 s.
const ROOMS: u64 = 32;

/// Make noises and room responses to train with.
///
/// Pink noises and decaying impulse responses, the same every time; `bregman sparsify` trains with them. Recordings
/// such as MUSAN's and real impulse responses are better: name their folders instead.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Writes DIR/noises/*.wav and DIR/rooms/*.wav.

Examples:
  bregman surroundings --out around
  bregman train mine.toml networks/ecapa methods/adabreg --out runs/noisy \\
      --set 'data.augment.noise={ folder = \"around/noises\", snr_db = [0, 15], probability = 0.5 }' \\
      --set 'data.augment.reverb={ folder = \"around/rooms\", probability = 0.5 }'")]
pub(crate) struct Args {
    /// Folder to write
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    write: WriteArgs,
}

#[derive(Serialize)]
struct Made {
    noises: PathBuf,
    rooms: PathBuf,
}

pub(crate) fn run(args: Args) -> Outcome {
    let [noises, rooms] = ["noises", "rooms"].map(|name| args.out.join(name));
    write(&noises, &rooms, args.write.force)?;
    if args.write.work.json {
        return print_json(&Made { noises, rooms });
    }
    print(&format!(
        "wrote {NOISES} noises to {} and {ROOMS} rooms to {}\n\
         train with them: data.augment.noise and data.augment.reverb, see bregman surroundings --help\n",
        noises.display(),
        rooms.display()
    ))
}

/// Noises and rooms of our own making, the same for every run: folders of audio as recordings would be. A folder that
/// has them already stays, so that a call that was killed between the two can be repeated.
pub(super) fn write(noises: &Path, rooms: &Path, force: bool) -> Outcome {
    let noise = |number| pink_noise(10 * RATE as usize, number);
    let room = |number| room_response(0.15 + 0.02 * number as f32, number);
    let mut folders = [
        (noises, (0..NOISES).map(noise).map(loud).collect::<Vec<_>>()),
        (rooms, (0..ROOMS).map(room).map(loud).collect()),
    ];
    for (folder, sounds) in &mut folders {
        if holds(folder, sounds) {
            sounds.clear();
        } else {
            refuse_existing(folder, force)?;
        }
    }
    for (folder, sounds) in folders.iter().filter(|(_, sounds)| !sounds.is_empty()) {
        replace_folder(folder, |new| {
            sounds.iter().enumerate().try_for_each(|(number, sound)| write_unsynced(&new.join(name(number)), sound))
        })?;
    }
    Ok(())
}

fn name(number: usize) -> String {
    format!("{number:02}.wav")
}

/// A WAV file whose largest sample is at nine tenths.
fn loud(samples: Vec<f32>) -> Vec<u8> {
    let largest = samples.iter().fold(1e-9f32, |largest, sample| largest.max(sample.abs()));
    wav_bytes(&Audio { rate: RATE, samples: samples.into_iter().map(|sample| 0.9 * sample / largest).collect() })
}

/// Whether a folder has these files and no others.
fn holds(folder: &Path, sounds: &[Vec<u8>]) -> bool {
    let files = std::fs::read_dir(folder).map_or(0, Iterator::count);
    let is_there = |(number, sound): (usize, &Vec<u8>)| {
        read_bytes(&folder.join(name(number)), sound.len() as u64).is_ok_and(|bytes| bytes == *sound)
    };
    files == sounds.len() && sounds.iter().enumerate().all(is_there)
}
