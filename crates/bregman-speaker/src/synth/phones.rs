//! The sounds of the synthetic language: formants of an average adult (after Peterson & Barney 1952 and Stevens 1998,
//! rounded).

/// Resonances of the cascade.
pub(super) const FORMANTS: usize = 5;

/// How a phone is excited.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// Glottal pulses through the whole tract.
    Vowel,
    /// Pulses, damped and quieter: nasals and liquids.
    Sonorant,
    /// Turbulence around one frequency (Hz); voiced if true.
    Fricative(f64, bool),
    /// Closure, then a burst around one frequency (Hz).
    Stop(f64),
}

/// One phone: excitation, formants in Hz, mean duration in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Phone {
    pub(super) kind: Kind,
    pub(super) formants: [f64; FORMANTS],
    pub(super) seconds: f64,
}

const fn phone(kind: Kind, f1: f64, f2: f64, f3: f64, seconds: f64) -> Phone {
    Phone { kind, formants: [f1, f2, f3, 3500.0, 4600.0], seconds }
}

/// Consonants first, then vowels.
pub(super) const PHONES: [Phone; 21] = [
    phone(Kind::Sonorant, 280.0, 1100.0, 2300.0, 0.07), // m
    phone(Kind::Sonorant, 300.0, 1500.0, 2500.0, 0.07), // n
    phone(Kind::Sonorant, 380.0, 1050.0, 2650.0, 0.07), // l
    phone(Kind::Sonorant, 420.0, 1250.0, 1700.0, 0.07), // r
    phone(Kind::Sonorant, 300.0, 2150.0, 2900.0, 0.06), // j
    phone(Kind::Fricative(5600.0, false), 350.0, 1700.0, 2600.0, 0.10), // s
    phone(Kind::Fricative(3100.0, false), 350.0, 1800.0, 2500.0, 0.10), // sh
    phone(Kind::Fricative(5200.0, true), 320.0, 1650.0, 2600.0, 0.08), // z
    phone(Kind::Fricative(1800.0, false), 450.0, 1400.0, 2500.0, 0.07), // h
    phone(Kind::Stop(900.0), 300.0, 1000.0, 2300.0, 0.09), // p
    phone(Kind::Stop(3800.0), 300.0, 1700.0, 2650.0, 0.09), // t
    phone(Kind::Stop(1900.0), 300.0, 1900.0, 2300.0, 0.09), // k
    phone(Kind::Vowel, 300.0, 2250.0, 2950.0, 0.13),    // i
    phone(Kind::Vowel, 420.0, 2050.0, 2650.0, 0.11),    // ɪ
    phone(Kind::Vowel, 540.0, 1850.0, 2550.0, 0.13),    // ɛ
    phone(Kind::Vowel, 680.0, 1700.0, 2450.0, 0.15),    // æ
    phone(Kind::Vowel, 740.0, 1150.0, 2500.0, 0.15),    // ɑ
    phone(Kind::Vowel, 580.0, 880.0, 2450.0, 0.14),     // ɔ
    phone(Kind::Vowel, 450.0, 1050.0, 2300.0, 0.11),    // ʊ
    phone(Kind::Vowel, 320.0, 920.0, 2250.0, 0.13),     // u
    phone(Kind::Vowel, 500.0, 1400.0, 1800.0, 0.13),    // ɝ
];

/// Where the vowels begin in [`PHONES`].
pub(super) const FIRST_VOWEL: usize = 12;
