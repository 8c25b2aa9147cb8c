//! Noise and rooms without recordings of any: for tests under conditions that can be stated in one number each.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::RATE;

/// Sound before the reverberation, in seconds.
const FIRST_REFLECTION: f32 = 0.005;
/// Energy of the reverberation, that of the direct sound being 1: a speaker two or three metres away in a furnished
/// room.
const REVERBERANT_ENERGY: f64 = 1.0;

/// Pink noise, whose power falls by 3 dB per octave as that of many real backgrounds does: white noise through the
/// three-pole filter of P. Kellet.
pub fn pink_noise(length: usize, seed: u64) -> Vec<f32> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut poles = [0f32; 3];
    let mut next = || {
        let white = rng.random_range(-1.0f32..1.0);
        for (pole, [keep, take]) in
            poles.iter_mut().zip([[0.99765, 0.099_046], [0.963, 0.296_516_4], [0.57, 1.052_691_3]])
        {
            *pole = keep * *pole + take * white;
        }
        poles.iter().sum::<f32>() + 0.1848 * white
    };
    (0..RATE / 10).for_each(|_| _ = next()); // until the slowest pole has filled
    (0..length).map(|_| next()).collect()
}

/// The impulse response of a room in which sound falls by 60 dB in `seconds`: the direct sound, then noise that decays.
pub fn room_response(seconds: f32, seed: u64) -> Vec<f32> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let silent = (FIRST_REFLECTION * RATE as f32) as usize;
    let length = silent + (seconds * RATE as f32) as usize;
    let decay = -3.0 * std::f32::consts::LN_10 / (seconds * RATE as f32); // 10⁻³ in amplitude after `seconds`
    let mut response: Vec<f32> = (0..length)
        .map(|i| if i < silent { 0.0 } else { rng.random_range(-1.0f32..1.0) * (decay * (i - silent) as f32).exp() })
        .collect();
    let energy: f64 = response.iter().map(|&x| f64::from(x).powi(2)).sum();
    let gain = if energy > 0.0 { (REVERBERANT_ENERGY / energy).sqrt() as f32 } else { 0.0 };
    response.iter_mut().for_each(|x| *x *= gain);
    response.splice(0..0, [1.0]);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn energy(samples: &[f32]) -> f64 {
        samples.iter().map(|&x| f64::from(x).powi(2)).sum()
    }

    #[test]
    fn the_power_of_pink_noise_falls_by_three_decibels_per_octave() {
        let noise = pink_noise(1 << 16, 3);
        // power in a band by a bank of cosines and sines
        let power = |hertz: f64| {
            let tone = |phase: f64| -> f64 {
                let angle = |i: usize| std::f64::consts::TAU * hertz * i as f64 / f64::from(RATE) + phase;
                noise.iter().enumerate().map(|(i, &x)| f64::from(x) * angle(i).cos()).sum()
            };
            tone(0.0).powi(2) + tone(std::f64::consts::FRAC_PI_2).powi(2)
        };
        let band = |low: f64| (0..40).map(|i| power(low * (1.0 + 0.01 * f64::from(i)))).sum::<f64>();
        for low in [200.0, 400.0, 800.0, 1600.0] {
            let fall = 10.0 * (band(low) / band(2.0 * low)).log10();
            assert!((fall - 3.0).abs() < 2.0, "{fall} dB from {low} Hz to the octave above");
        }
    }

    #[test]
    fn a_room_decays_by_sixty_decibels_in_its_time() {
        let response = room_response(0.5, 7);
        assert_eq!(response[0], 1.0, "the direct sound");
        assert!((energy(&response[1..]) - REVERBERANT_ENERGY).abs() < 1e-3);
        let at = |seconds: f32| {
            let start = ((FIRST_REFLECTION + seconds) * RATE as f32) as usize;
            energy(&response[start..start + 400])
        };
        let fall = 10.0 * (at(0.0) / at(0.25)).log10();
        assert!((fall - 30.0).abs() < 3.0, "{fall} dB in half of the time");
    }

    #[test]
    fn the_seed_decides_and_zero_seconds_is_no_room() {
        assert_eq!(pink_noise(100, 1), pink_noise(100, 1));
        assert_ne!(pink_noise(100, 1), pink_noise(100, 2));
        assert_eq!(energy(&room_response(0.0, 1)), 1.0);
    }
}
