//! A headless Chromium, driven over its DevTools protocol.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    session: Value,
    next: u64,
    /// Errors that the page reported.
    pub(crate) complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts it with an empty page of 1400 × 900.
    pub(crate) fn start(program: &Path) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
            ])
            .args([
                "--disable-component-update",
                "--disable-sync",
                "--disable-dev-shm-usage",
                "--remote-debugging-port=0",
            ])
            .args(["--window-size=1400,900", &format!("--user-data-dir={}", profile.path().display()), "about:blank"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("DevTools listening on ").map(str::to_owned));
        std::thread::spawn(move || lines.for_each(drop)); // a full pipe would block the browser
        let (socket, _) = tungstenite::connect(address.expect("Chromium prints its address")).unwrap();
        if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        }
        let mut browser =
            Self { child, socket, session: Value::Null, next: 0, complaints: Vec::new(), _profile: profile };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        browser.session =
            browser.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}))["sessionId"].clone();
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        let size = json!({"width": 1400, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        browser.call("Emulation.setDeviceMetricsOverride", size);
        browser
    }

    /// Calls a method and waits for its answer.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": params});
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        self.socket.send(Message::text(message.to_string())).unwrap();
        loop {
            let Message::Text(text) = self.socket.read().expect("Chromium answers") else { continue };
            let answer: Value = serde_json::from_str(&text).unwrap();
            if answer["id"] == self.next {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            let event = &answer["params"];
            match answer["method"].as_str() {
                Some("Runtime.exceptionThrown") => self.complaints.push(event["exceptionDetails"].to_string()),
                Some("Runtime.consoleAPICalled") => self.complaints.push(event["args"].to_string()),
                Some("Log.entryAdded") => self.complaints.push(event["entry"].to_string()),
                _ => {}
            }
        }
    }

    /// The value of an expression in the page.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub(crate) fn until(&mut self, expression: &str) {
        let began = Instant::now();
        while self.eval(expression) != true {
            assert!(began.elapsed() < Duration::from_secs(30), "{expression}; complaints: {:?}", self.complaints);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Opens a report and waits until it is drawn.
    pub(crate) fn open(&mut self, report: &Path) {
        self.call("Page.navigate", json!({"url": format!("file://{}", report.display())}));
        self.until("document.body?.dataset.ready === 'yes'");
    }

    /// The middle of an element, scrolled into view.
    pub(crate) fn middle(&mut self, selector: &str) -> [f64; 2] {
        let find = format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{ block: 'center', behavior: \
             'instant' }});
             const r = e.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; }})()"
        );
        let place = self.eval(&find);
        [0, 1].map(|at| place[at].as_f64().unwrap_or_else(|| panic!("no {selector}")))
    }

    /// A mouse event.
    pub(crate) fn mouse(&mut self, kind: &str, [x, y]: [f64; 2], clicks: u32) {
        let button = if kind == "mouseMoved" { "none" } else { "left" };
        let held = u32::from(kind != "mouseReleased" && clicks > 0);
        self.call(
            "Input.dispatchMouseEvent",
            json!({"type": kind, "x": x, "y": y, "button": button, "buttons": held, "clickCount": clicks}),
        );
    }

    /// Presses and releases the left button, `clicks` times in a row.
    pub(crate) fn click(&mut self, at: [f64; 2], clicks: u32) {
        self.mouse("mouseMoved", at, 0);
        for click in 1..=clicks {
            self.mouse("mousePressed", at, click);
            self.mouse("mouseReleased", at, click);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
