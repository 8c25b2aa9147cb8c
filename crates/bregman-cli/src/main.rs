//! `bregman`: from a folder of audio to a sparse speaker-verification network.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod commands;
mod device;
mod evaluation;
mod exit;
mod failure;
mod network;
mod output;
mod pattern;
mod plot;
mod report;
mod runs;
mod signals;
mod sparkline;
mod watch;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use exit::Exit;
use failure::Failure;

/// Train speaker-verification networks to an exact sparsity.
#[derive(Debug, Parser)]
#[command(name = "bregman", version, after_help = help())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Find and measure the audio of a corpus and write a manifest
    Prepare(commands::prepare::Args),
    /// Generate a corpus of synthetic voices
    Synth(commands::synth::Args),
    /// Pack a corpus into tar shards
    Shard(commands::shard::Args),
    /// Train dense, adaptive and pruned networks on synthetic voices and compare them
    Demo(commands::demo::Args),
    /// List the recipes, or print one with all its settings
    Recipes(commands::recipes::Args),
    /// Train a network to an exact sparsity
    Train(commands::train::Args),
    /// Train and evaluate a recipe for every combination of some settings
    Sweep(commands::sweep::Args),
    /// Measure a trained network on a trial list
    Evaluate(commands::evaluate::Args),
    /// Compute the embeddings of audio files or of a corpus
    Embed(commands::embed::Args),
    /// Decide whether two recordings are of the same speaker
    Verify(commands::verify::Args),
    /// Add a speaker to a file of enrolled speakers
    Enroll(commands::enroll::EnrollArgs),
    /// Find out which enrolled speaker a recording is of
    Identify(commands::enroll::IdentifyArgs),
    /// Write a trained network as one small file, or as ONNX
    Export(commands::export::Args),
    /// Measure how fast a model file is on this machine
    Bench(commands::bench::Args),
    /// Show the sparsity of a run or a model file, layer by layer
    Inspect(commands::inspect::Args),
    /// Write an HTML report of runs: sparsity, λ, loss, layers, error rates, recipes
    Report(commands::report::Args),
    /// Write single figures of runs as SVG, PNG or PDF
    Plot(commands::plot::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Prepare(args) => end(commands::prepare::run(args)),
        Command::Synth(args) => end(commands::synth::run(args)),
        Command::Shard(args) => end(commands::shard::run(args)),
        Command::Demo(args) => end(commands::demo::run(args)),
        Command::Recipes(args) => end(commands::recipes::run(args)),
        Command::Train(args) => end(commands::train::run(args)),
        Command::Sweep(args) => end(commands::sweep::run(args)),
        Command::Evaluate(args) => end(commands::evaluate::run(args)),
        Command::Embed(args) => end(commands::embed::run(args)),
        Command::Verify(args) => end(commands::verify::run(args)),
        Command::Enroll(args) => end(commands::enroll::enroll(args)),
        Command::Identify(args) => end(commands::enroll::identify(args)),
        Command::Export(args) => end(commands::export::run(args)),
        Command::Bench(args) => end(commands::bench::run(args)),
        Command::Inspect(args) => end(commands::inspect::run(args)),
        Command::Report(args) => end(commands::report::run(args)),
        Command::Plot(args) => end(commands::plot::run(args)),
    }
}

/// What stands below the list of commands.
fn help() -> String {
    format!("Each command has examples: bregman COMMAND --help\n\n{}", exit::HELP)
}

fn end(outcome: Result<impl Into<Exit>, Failure>) -> ExitCode {
    outcome.map_or_else(|failure| failure.report(), |exit| exit.into().into())
}

/// What a command returns that is done or fails. Those with other endings return an [`Exit`].
type Outcome = Result<(), Failure>;
