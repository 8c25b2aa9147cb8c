//! `bregman`: from a folder of audio to a sparse speaker-verification network.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod commands;
mod device;
mod evaluation;
mod exit;
mod failure;
mod known;
mod network;
mod output;
mod pattern;
mod plot;
mod ranks;
mod report;
mod runs;
mod runtime_model;
mod signals;
mod sparkline;
mod watch;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use exit::Exit;
use failure::Failure;

#[global_allocator]
static ALLOCATOR: bregman_base::LargePages = bregman_base::LargePages;

/// Train speaker-verification networks to an exact sparsity.
#[derive(Debug, Parser)]
#[command(name = "bregman", version, after_help = help())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Described where its arguments are: the first paragraph there is its line in the list of commands.
#[derive(Debug, Subcommand)]
enum Command {
    Prepare(commands::prepare::Args),
    Synth(commands::synth::Args),
    Surroundings(commands::surroundings::Args),
    Shard(commands::shard::Args),
    Demo(commands::demo::Args),
    Recipes(commands::recipes::Args),
    Train(commands::train::Args),
    Sweep(commands::sweep::Args),
    Sparsify(commands::sparsify::Args),
    Evaluate(commands::evaluate::Args),
    Embed(commands::embed::Args),
    Verify(commands::verify::Args),
    Enroll(commands::enroll::EnrollArgs),
    Identify(commands::enroll::IdentifyArgs),
    Diarize(commands::diarize::Args),
    Export(commands::export::Args),
    Bench(commands::bench::Args),
    Inspect(commands::inspect::Args),
    Report(commands::report::Args),
    Plot(commands::plot::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Prepare(args) => end(commands::prepare::run(args)),
        Command::Synth(args) => end(commands::synth::run(args)),
        Command::Surroundings(args) => end(commands::surroundings::run(args)),
        Command::Shard(args) => end(commands::shard::run(args)),
        Command::Demo(args) => end(commands::demo::run(args)),
        Command::Recipes(args) => end(commands::recipes::run(args)),
        Command::Train(args) => end(commands::train::run(args)),
        Command::Sweep(args) => end(commands::sweep::run(args)),
        Command::Sparsify(args) => end(commands::sparsify::run(args)),
        Command::Evaluate(args) => end(commands::evaluate::run(args)),
        Command::Embed(args) => end(commands::embed::run(args)),
        Command::Verify(args) => end(commands::verify::run(args)),
        Command::Enroll(args) => end(commands::enroll::enroll(args)),
        Command::Identify(args) => end(commands::enroll::identify(args)),
        Command::Diarize(args) => end(commands::diarize::run(args)),
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
    let exit = outcome.map_or_else(|failure| failure.report(&ranks::prefix()), Into::into);
    ranks::leave(exit);
    exit.into()
}

/// What a command returns that is done or fails. Those with other endings return an [`Exit`].
type Outcome = Result<(), Failure>;

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_help_of_every_command_has_its_whole_description_and_examples() {
        let mut program = Cli::command().term_width(120);
        program.build();
        let list = program.render_long_help().to_string();
        let width = program.get_subcommands().map(|command| command.get_name().len()).max().unwrap_or(0) + 2;
        for command in program.get_subcommands_mut().filter(|command| command.get_name() != "help") {
            let name = command.get_name().to_owned();
            let line = command.get_about().unwrap_or_default().to_string();
            let listed = format!("  {name:<width$}{line}\n");
            assert!(list.contains(&listed) && listed.len() < 100, "{listed}{list}");
            let help = command.render_long_help().to_string();
            let (description, rest) = help.split_once("\n\nUsage: ").unwrap();
            let more = description.strip_prefix(&format!("{line}.\n\n")).unwrap_or_default();
            assert!(more.len() > 50 && more.ends_with('.'), "{name}: {help}");
            assert!(rest.contains(&format!("\nExamples:\n  bregman {name}")), "{name}: {help}");
        }
    }

    #[test]
    fn wherever_recordings_are_cut_help_says_that_their_middle_stays() {
        let program = Cli::command();
        let cutting = |command: &clap::Command| {
            let option = command.get_arguments().find(|option| option.get_long() == Some("max-seconds"))?;
            Some(option.get_help().expect("every option has a line").to_string())
        };
        let lines: Vec<String> = program.get_subcommands().filter_map(cutting).collect();
        assert!(lines.len() >= 4 && lines.iter().all(|line| line.contains("middle")), "{lines:?}");
    }
}
