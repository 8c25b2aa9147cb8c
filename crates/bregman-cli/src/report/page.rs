//! The page: template, style, script and data in one file. Nothing is loaded from elsewhere.
//!
//! While a run trains, the file is rewritten and the open page checks it every few seconds: it loads itself into a
//! hidden frame, which posts its data as a message. That works from `file://`, where a page may not read files, and
//! keeps zoom and selections.

use serde::Serialize;

use crate::runs::ReportedRun;

/// Whether the page should check for updates, and every how many seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Live(pub(crate) Option<u64>);

#[derive(Serialize)]
struct PageData<'a> {
    version: &'static str,
    /// Milliseconds since 1970.
    written: u128,
    live: Live,
    runs: &'a [&'a ReportedRun],
}

const TEMPLATE: &str = include_str!("../../assets/report.html");
const STYLE: &str = include_str!("../../assets/report.css");
/// The scripts, each after those it uses.
const SCRIPTS: &str = concat!(
    include_str!("../../assets/js/dom.js"),
    include_str!("../../assets/js/format.js"),
    include_str!("../../assets/js/scale.js"),
    include_str!("../../assets/js/state.js"),
    include_str!("../../assets/js/figure.js"),
    include_str!("../../assets/js/plane.js"),
    include_str!("../../assets/js/trace.js"),
    include_str!("../../assets/js/chart.js"),
    include_str!("../../assets/js/curves.js"),
    include_str!("../../assets/js/layers.js"),
    include_str!("../../assets/js/scores.js"),
    include_str!("../../assets/js/table.js"),
    include_str!("../../assets/js/recipes.js"),
    include_str!("../../assets/js/live.js"),
    include_str!("../../assets/js/main.js"),
);

/// The whole file.
pub(crate) fn page(runs: &[&ReportedRun], live: Live) -> String {
    let written = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_millis());
    let data = PageData { version: env!("CARGO_PKG_VERSION"), written, live, runs };
    // A `<` in a run's name or recipe must not end the script element.
    let data = serde_json::to_string(&data).expect("runs are plain data").replace('<', "\\u003c");
    let parts = [("/*STYLE*/", STYLE), ("/*SCRIPT*/", SCRIPTS), ("/*DATA*/", &data)];
    parts.iter().fold(TEMPLATE.to_owned(), |page, (mark, text)| page.replacen(mark, text, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_loads_nothing_from_elsewhere() {
        let page = page(&[], Live(None));
        let addresses = page.match_indices("http").filter(|(at, _)| !page[*at..].starts_with("http://www.w3.org/"));
        assert_eq!(addresses.count(), 0, "an address in the page");
        assert!(!page.contains("<link") && !page.contains("@import") && !page.contains("/*DATA*/"));
    }
}
