//! The page in Chromium: a script chooses files like a user and reports what the page then shows.

mod common;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Served with the page and run in it.
const DRIVER: &str = include_str!("driver.js");

/// Answers requests for `files`; what is posted goes to `posted`.
fn serve(listener: &TcpListener, files: &HashMap<String, Vec<u8>>, posted: &Sender<String>) -> std::io::Result<()> {
    for stream in listener.incoming() {
        answer(stream?, files, posted).ok(); // Chromium opens connections that it does not use
    }
    Ok(())
}

fn answer(mut stream: TcpStream, files: &HashMap<String, Vec<u8>>, posted: &Sender<String>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end().to_ascii_lowercase().strip_prefix("content-length:") {
            Some(value) => length = value.trim().parse().unwrap_or(0),
            None if line.trim_end().is_empty() => break,
            None => {}
        }
    }
    let path = request.split(' ').nth(1).unwrap_or("").to_owned();
    if request.starts_with("POST") {
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        posted.send(String::from_utf8_lossy(&body).into_owned()).ok();
    }
    let kind = match path.rsplit('.').next() {
        Some("js") => "text/javascript",
        Some("wasm") => "application/wasm",
        Some("breg" | "wav") => "application/octet-stream",
        _ => "text/html",
    };
    let empty = Vec::new();
    let (status, body) = match files.get(&path) {
        Some(body) => ("200 OK", body),
        None => ("404 Not Found", &empty),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(body)
}

#[test]
fn the_page_verifies_two_recordings_in_a_browser() {
    let Some(chromium) = bregman_skip::chromium_or_skip() else { return };
    let Some(web) = common::web() else { return };
    let model = common::model();
    let ([first, second], score) = common::sounds(&model);
    let read = |name: &str| std::fs::read(web.join(name)).unwrap();
    let mut page = read("index.html");
    page.extend(b"<script type=\"module\" src=\"driver.js\"></script>");
    let files = [
        ("/", page),
        ("/page.js", read("page.js")),
        ("/bregman.js", read("bregman.js")),
        ("/bregman.wasm", read("bregman.wasm")),
        ("/driver.js", DRIVER.as_bytes().to_vec()),
        ("/model.breg", model),
        ("/first.wav", first),
        ("/second.wav", second),
    ];
    let files = files.map(|(path, bytes)| (path.to_owned(), bytes)).into();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let (posted, results) = channel();
    std::thread::spawn(move || serve(&listener, &files, &posted));

    let profile = tempfile::tempdir().unwrap();
    let mut browser = Command::new(chromium)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
        ])
        .args(["--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(address)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let result = results.recv_timeout(Duration::from_secs(90));
    browser.kill().unwrap();
    browser.wait().unwrap();

    let report: serde_json::Value = serde_json::from_str(&result.expect("the page reports within 90 s")).unwrap();
    assert!(report["failure"].is_null(), "{report}");
    assert!(
        report["refusal"].as_str().unwrap().contains("model.breg: this browser cannot decode it as audio"),
        "{report}"
    );
    let number = |key: &str| report[key].as_str().unwrap().parse::<f64>().unwrap();
    assert!((number("score") - score).abs() <= 1e-4, "{report} against {score}");
    assert_eq!(
        (number("threshold"), report["decision"].as_str().unwrap()),
        (0.25, if score > 0.25 { "same" } else { "another" })
    );
    assert!(number("time") > 0.0 && report["text"].as_str().unwrap().contains("real time"), "{report}");
}
