//! The page, served to Chromium on this machine.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Served with the page and run in it.
const DRIVER: &str = include_str!("driver.js");

/// Flags of every browser: nothing but the page is asked for.
const QUIET: &str = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync \
    --disable-background-networking --disable-component-update --disable-dev-shm-usage";

/// A server of the page, the driver and `files`, and what the driver has posted.
pub(crate) struct Server {
    pub(crate) address: String,
    posted: Receiver<String>,
}

impl Server {
    pub(crate) fn start(web: &Path, files: impl IntoIterator<Item = (&'static str, Vec<u8>)>) -> Self {
        let page = std::fs::read_dir(web).unwrap().map(|entry| entry.unwrap().path());
        let named = |path: &Path| format!("/{}", path.file_name().unwrap().to_str().unwrap());
        let mut served: HashMap<String, Vec<u8>> =
            page.map(|path| (named(&path), std::fs::read(&path).unwrap())).collect();
        served.extend(files.into_iter().map(|(name, bytes)| (format!("/{name}"), bytes)));
        let mut page = served["/index.html"].clone();
        page.extend(b"<script type=\"module\" src=\"driver.js\"></script>");
        served.extend([("/".to_owned(), page), ("/driver.js".to_owned(), DRIVER.into())]);

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
        let (sender, posted) = channel();
        let served = Arc::new(served);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (served, sender) = (served.clone(), sender.clone());
                // Chromium opens connections that it does not use
                std::thread::spawn(move || answer(stream?, &served, &sender));
            }
        });
        Self { address, posted }
    }

    /// Opens the page in a browser, for which the driver plays `act`, and returns what the driver reports.
    pub(crate) fn play(&self, chromium: &Path, profile: &Path, flags: &[String], act: &str) -> serde_json::Value {
        let mut browser = Command::new(chromium)
            .args(QUIET.split_whitespace())
            .args(flags)
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(format!("{}?{act}", self.address))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let report = self.posted.recv_timeout(Duration::from_secs(90));
        browser.kill().unwrap();
        browser.wait().unwrap();
        let report: serde_json::Value = serde_json::from_str(&report.expect("the page reports within 90 s")).unwrap();
        assert!(report["failure"].is_null(), "{act}: {report}");
        report
    }
}

fn answer(mut stream: TcpStream, files: &HashMap<String, Vec<u8>>, posted: &Sender<String>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
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
    let path = request.split([' ', '?']).nth(1).unwrap_or("");
    if request.starts_with("POST") {
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        posted.send(String::from_utf8_lossy(&body).into_owned()).ok();
    }
    let kind = match path.rsplit('.').next() {
        Some("js") => "text/javascript",
        Some("css") => "text/css",
        Some("wasm") => "application/wasm",
        Some("breg" | "wav") => "application/octet-stream",
        _ => "text/html",
    };
    let empty = Vec::new();
    let (status, body) = match files.get(path) {
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
