//! `bregman`: from a folder of audio to a sparse speaker-verification network.
#![forbid(unsafe_code)]

mod commands;
mod failure;
mod output;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Failure;

/// Train speaker-verification networks to an exact sparsity.
#[derive(Debug, Parser)]
#[command(name = "bregman", version, after_help = "Each command has examples: bregman COMMAND --help")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Find and measure the audio of a corpus and write a manifest
    Prepare(commands::prepare::Args),
    /// Make a corpus of synthetic voices
    Synth(commands::synth::Args),
    /// Pack a corpus into tar shards
    Shard(commands::shard::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Prepare(args) => commands::prepare::run(args),
        Command::Synth(args) => commands::synth::run(args),
        Command::Shard(args) => commands::shard::run(args),
    };
    result.map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}

/// What every command returns.
type Outcome = Result<(), Failure>;
