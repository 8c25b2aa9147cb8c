//! `bregman surroundings`: noise and rooms to train with, where there are no recordings of any.

use std::path::{Path, PathBuf};

use bregman_audio::{Audio, RATE, pink_noise, room_response, write_wav};
use serde::Serialize;

use super::options::WriteArgs;
use crate::Outcome;
use crate::failure::Failure;
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
    for folder in [&noises, &rooms] {
        refuse_existing(folder, args.write.force)?;
    }
    write(&noises, &rooms)?;
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

/// Noises and rooms of our own making, the same for every run: folders of audio as recordings would be.
pub(super) fn write(noises: &Path, rooms: &Path) -> Result<(), Failure> {
    write_folder(noises, NOISES, |number| pink_noise(10 * RATE as usize, number))?;
    write_folder(rooms, ROOMS, |number| room_response(0.15 + 0.02 * number as f32, number))
}

fn write_folder(folder: &Path, count: u64, sound: impl Fn(u64) -> Vec<f32>) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| Failure::failed(format!("{}: {error}", folder.display())))?;
    for number in 0..count {
        let samples = sound(number);
        let largest = samples.iter().fold(1e-9f32, |largest, sample| largest.max(sample.abs()));
        let samples = samples.into_iter().map(|sample| 0.9 * sample / largest).collect();
        write_wav(folder.join(format!("{number:02}.wav")), &Audio { rate: RATE, samples })
            .map_err(|error| Failure::failed(error.to_string()))?;
    }
    Ok(())
}
