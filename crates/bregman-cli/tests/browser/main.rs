//! The report in a real browser. Without Chromium, each test is skipped.

#[path = "../common/mod.rs"]
mod common;
mod devtools;

use std::io::Write;

use common::{PER_EPOCH, bregman, epoch_line, start, step_line, success, text, write_run};
use devtools::Browser;

fn browser() -> Option<Browser> {
    bregman_skip::chromium_or_skip().map(|program| Browser::start(&program))
}

#[test]
fn the_page_draws_sorts_shows_values_and_zooms_without_errors() {
    let Some(mut browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (runs, report) = (dir.path().join("runs"), dir.path().join("report.html"));
    write_run(&runs.join("first"), 5, 0.9, "linbreg");
    write_run(&runs.join("second <b> & co"), 5, 0.95, "adabreg");
    let third = write_run(&runs.join("third"), 5, 0.75, "adabreg");
    let recipe = std::fs::read_to_string(third.join("config.toml")).unwrap();
    std::fs::write(third.join("config.toml"), recipe + "# </script><script>console.error('escaped')</script>\n")
        .unwrap();
    success(&bregman(&["report", text(&runs), "-o", text(&report)]));
    browser.open(&report);

    // Every chart is drawn, and each run has its line.
    assert_eq!(
        browser.eval("[...document.querySelectorAll('figure')].filter(f => f.dataset.drawn !== 'yes').map(f => f.id)"),
        serde_json::json!([])
    );
    assert!(browser.eval("document.querySelectorAll('figure').length").as_u64() >= Some(20));
    for chart in ["sparsity", "lambda", "error", "norm", "loss-step", "lr", "speed", "det"] {
        assert_eq!(
            browser.eval(&format!("document.querySelectorAll('#chart-{chart} path.line').length")),
            3,
            "{chart}"
        );
    }
    assert_eq!(browser.eval("document.querySelectorAll('#chart-sparsity .target').length"), 3, "one line per target");
    assert_eq!(browser.eval("document.querySelectorAll('#chart-sparsity .band').length"), 3, "and its tolerance");
    assert_eq!(browser.eval("document.querySelectorAll('#chart-eer-in .interval').length"), 3, "bootstrap intervals");
    assert_eq!(browser.eval("document.querySelectorAll('#chart-layers .bar').length"), 2);
    assert!(browser.eval("document.querySelector('#chart-layers').textContent.includes('all zero')") == true);
    assert!(browser.eval("document.querySelector('#notes').textContent.includes('not finished')") == true);

    // Sorting by a column, both ways.
    let column = "[...document.querySelectorAll('#runs tbody tr')].map(r => r.cells[3].textContent)";
    let header = browser.middle("#runs th:nth-child(4) button");
    browser.click(header, 1);
    assert_eq!(browser.eval(column), serde_json::json!(["95.00 %", "90.00 %", "75.00 %"]));
    browser.click(header, 1);
    assert_eq!(browser.eval(column), serde_json::json!(["75.00 %", "90.00 %", "95.00 %"]));
    assert_eq!(browser.eval("document.querySelector('#runs th:nth-child(4)').ariaSort"), "ascending");

    // Hovering shows the values of all runs.
    let middle = browser.middle("#chart-lambda .overlay");
    browser.mouse("mouseMoved", middle, 0);
    browser.until("!document.querySelector('#chart-lambda .tip').hidden");
    let read = browser.eval("document.querySelector('#chart-lambda .tip').textContent");
    assert!(
        ["step", "first", "second <b> & co", "third"].iter().all(|word| read.as_str().unwrap().contains(word)),
        "{read}"
    );

    // Dragging zooms all charts over steps, a double click resets the zoom.
    let first_tick = "Number(document.querySelector('#chart-loss-step svg text[text-anchor=middle]').textContent)";
    let before = browser.eval(first_tick);
    browser.mouse("mousePressed", middle, 1);
    browser.mouse("mouseMoved", [middle[0] + 60.0, middle[1]], 1);
    browser.mouse("mouseMoved", [middle[0] + 120.0, middle[1] + 2.0], 1);
    browser.mouse("mouseReleased", [middle[0] + 120.0, middle[1] + 2.0], 1);
    assert!(browser.eval(first_tick).as_f64() > before.as_f64(), "zoomed");
    browser.click(middle, 2);
    assert_eq!(browser.eval(first_tick), before);

    // The legend hides a run, the filter all that do not match.
    let entry = browser.middle("#legend li:first-child button");
    browser.click(entry, 1);
    browser.until("document.querySelectorAll('#chart-sparsity path.line').length === 2");
    browser.eval(
        "(() => { const f = document.querySelector('#filter'); f.value = 'adabreg 0.75'; f.dispatchEvent(new \
            Event('input')); })()",
    );
    browser.until(
        "document.body.dataset.ready === 'yes' && document.querySelectorAll('#chart-sparsity path.line').length === 1",
    );
    assert_eq!(browser.eval("document.querySelectorAll('#runs tbody tr').length"), 1);

    // Light and dark.
    let paper = "getComputedStyle(document.querySelector('figure')).backgroundColor";
    let light = browser.eval(paper);
    let button = browser.middle("#theme");
    browser.click(button, 1);
    assert_ne!(browser.eval(paper), light);

    // The saved drawing is self-contained, the saved numbers are those of the chart.
    browser.eval(
        "(() => { window.saved = []; URL.createObjectURL = (blob) => { blob.text().then((text) => \
        window.saved.push(text)); return '#'; }; })()",
    );
    browser.eval("document.querySelectorAll('#chart-sparsity .tools button').forEach((button) => button.click())");
    browser.until("window.saved.length === 2");
    let saved = browser.eval("window.saved");
    assert!(
        saved[0].as_str().unwrap().starts_with("<svg") && !saved[0].as_str().unwrap().contains("var(--"),
        "colours are resolved"
    );
    let lines = saved[1].as_str().unwrap().lines().count() as u64;
    assert_eq!(lines, 1 + 5 * PER_EPOCH, "a header and every step of the one run that is shown");
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
fn damaged_and_empty_runs_are_shown_without_errors() {
    let Some(mut browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report.html");
    let cut = write_run(&dir.path().join("cut"), 1, 0.9, "linbreg");
    let log = std::fs::read_to_string(cut.join("metrics.jsonl")).unwrap();
    std::fs::write(cut.join("metrics.jsonl"), &log[..log.len() / 2]).unwrap();
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    for runs in [vec![text(&empty)], vec![text(&cut)], vec![text(&cut), text(&empty)]] {
        success(&bregman(&[&["report", "--force", "-o", text(&report)], &runs[..]].concat()));
        browser.open(&report);
        let drawn = browser.eval("document.querySelectorAll('#chart-sparsity path.line').length");
        assert_eq!(drawn, u64::from(runs.contains(&text(&cut))));
        assert_eq!(
            browser.eval("document.querySelectorAll('figure .empty').length > 0"),
            true,
            "what is missing says so"
        );
        assert!(
            browser.eval("document.querySelector('#notes').textContent").as_str().unwrap().contains("metrics.jsonl")
        );
    }
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
fn an_open_page_follows_a_growing_run_from_disk_and_keeps_its_state() {
    let Some(mut browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (run, report) = (write_run(&dir.path().join("run"), 2, 0.9, "linbreg"), dir.path().join("report.html"));
    let args = ["report", text(&run), "-o", text(&report), "--watch", "--every", "1"];
    let mut watch = start(&args);
    while !report.exists() {
        assert!(watch.try_wait().unwrap().is_none(), "the watch goes on");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    browser.open(&report);
    browser.eval("window.same = 'page'");
    let steps = "document.querySelector('#subtitle').textContent";
    assert!(browser.eval(steps).as_str().unwrap().contains(&format!("{} steps", 2 * PER_EPOCH)));
    let mut log = std::fs::OpenOptions::new().append(true).open(run.join("metrics.jsonl")).unwrap();
    let more: String =
        (1..=PER_EPOCH).map(|step| step_line(2 * PER_EPOCH + step, 0.9)).chain([epoch_line(3, 0.9)]).collect();
    log.write_all(more.as_bytes()).unwrap();
    browser.until(&format!("{steps}.includes('{} steps')", 3 * PER_EPOCH));
    assert_eq!(browser.eval("window.same"), "page", "it was not loaded again");
    assert_eq!(browser.eval("document.querySelector('#live').hidden"), false);
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert_eq!(browser.complaints, Vec::<String>::new());
}
