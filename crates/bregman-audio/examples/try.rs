//! scratch
use bregman_audio::*;
fn main() {
    let x: Vec<f32> = (0..960000).map(|i| ((i * 7919) % 1000) as f32 / 1000.0 - 0.5).collect();
    for config in [FbankConfig::speechbrain(), FbankConfig::kaldi(Window::Povey)] {
        let mut f = Fbank::new(config).unwrap();
        let mut out = Features::default();
        let mut times = vec![];
        for _ in 0..40 {
            let t = std::time::Instant::now();
            x.chunks(48000).for_each(|x| f.compute_into(x, &mut out));
            times.push(t.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        println!("{:.3} ms per minute", times[20]);
    }
}
