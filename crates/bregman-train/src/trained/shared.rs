//! Networks on a device, each shared by a few threads, which read audio and compute features while it works.
//!
//! Utterances go through one at a time: hardly two are of equal length, and a batch of those that happen to meet would
//! make the last digits depend on when they met. A GPU is kept busy by several networks side by side instead.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bregman_speaker::Extractor;
use bregman_speaker::score::Embedder;
use bregman_tensor::{Backend, FoundDevice};

use crate::{Device, OnDevice, Open, Result, Trained, on_device};

/// Copies of one network for threads that ask for them, on whatever device was found: a copy for each thread of a CPU,
/// one of a few that threads share on a GPU.
pub struct NetworkPool(Box<dyn Fn() -> Result<Box<dyn Embedder>> + Send + Sync>);

impl NetworkPool {
    /// The network of a run or checkpoint. The device is opened when the first copy is asked for.
    pub fn new(device: &FoundDevice, path: PathBuf) -> Self {
        on_device(device, Pool { path, shared: device.gpu().is_some() })
    }

    /// A copy or a share of one.
    ///
    /// # Errors
    /// As [`Trained::load_on`].
    pub fn embedder(&self) -> Result<Box<dyn Embedder>> {
        (self.0)()
    }
}

struct Pool {
    path: PathBuf,
    shared: bool,
}

impl OnDevice for Pool {
    type Output = NetworkPool;

    fn run<B: Device>(self, open: impl Open<B>) -> NetworkPool {
        let Self { path, shared } = self;
        let load = move || Trained::load_on(&open, &path);
        let networks = SharedNetworks::default();
        NetworkPool(Box::new(move || {
            Ok(if shared { Box::new(networks.join(&load)?) as Box<dyn Embedder> } else { Box::new(load()?) })
        }))
    }
}

/// Threads that take turns with one network: about as many as keep it busy.
const SHARERS: usize = 4;

/// Copies of one network, made as threads ask for them.
pub struct SharedNetworks<B: Backend> {
    networks: Mutex<Vec<Arc<Mutex<Trained<B>>>>>,
}

/// A thread's share of a network.
pub struct NetworkShare<B: Backend> {
    extractor: Extractor,
    network: Arc<Mutex<Trained<B>>>,
}

impl<B: Backend> Default for SharedNetworks<B> {
    fn default() -> Self {
        Self { networks: Mutex::default() }
    }
}

impl<B: Backend> SharedNetworks<B> {
    /// A share of a network that has room for one more thread, or of a new one.
    ///
    /// # Errors
    /// Whatever `load` says.
    pub fn join(&self, load: impl FnOnce() -> Result<Trained<B>>) -> Result<NetworkShare<B>> {
        let mut networks = lock(&self.networks);
        let has_room = |network: &&Arc<_>| Arc::strong_count(network) <= SHARERS; // one of these is ours
        let network = match networks.iter().find(has_room) {
            Some(network) => network.clone(),
            None => {
                networks.push(Arc::new(Mutex::new(load()?)));
                networks[networks.len() - 1].clone()
            }
        };
        let extractor = lock(&network).front_end()?;
        Ok(NetworkShare { extractor, network })
    }
}

impl<B: Backend> Embedder for NetworkShare<B> {
    fn embed(&mut self, samples: &mut [f32]) -> Result<Vec<f32>, String> {
        let frames = self.extractor.frames(samples.len());
        let features = self.extractor.extract(samples, 0);
        lock(&self.network).embed_features(&features.data, frames).map_err(|error| error.to_string())
    }
}

/// A thread that panicked has left nothing half done that the next use does not overwrite.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
