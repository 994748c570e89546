"use strict";
// What pages need besides htmx: they stop asking while nobody looks, and say it when they are not up to date.
(function () {
  function stale(text) {
    var note = document.getElementById("stale");
    if (!note) { return; }
    if (document.querySelector("#live .problem")) { text = ""; } // the page says it already
    note.hidden = !text;
    if (note.textContent !== text) { note.textContent = text; }
  }
  document.addEventListener("htmx:beforeRequest", function (event) {
    if (document.hidden) { event.preventDefault(); }
  });
  document.addEventListener("htmx:afterRequest", function (event) {
    var answer = event.detail.xhr;
    if (!event.detail.successful) {
      stale("This page is not up to date: the replica that serves it does not answer. Trying again.");
    } else if (answer.getResponseHeader("X-Console-Problem")) {
      stale("This page is not up to date. " + decodeURIComponent(answer.getResponseHeader("X-Console-Problem")));
    } else {
      stale("");
    }
  });
  // On a narrow screen the navigation scrolls: the page that is open is to be seen in it.
  var current = document.querySelector(".top nav a[aria-current]");
  if (current) { current.parentNode.scrollLeft = current.offsetLeft - current.parentNode.offsetLeft - 40; }
  // On a narrow screen a row of a table is a card, in which each cell says what it is.
  function label() {
    document.querySelectorAll(".wide table").forEach(function (table) {
      var names = Array.from(table.querySelectorAll("thead th, thead td"), function (head) { return head.textContent; });
      table.querySelectorAll("tbody tr").forEach(function (row) {
        Array.from(row.children).forEach(function (cell, i) { cell.dataset.label = names[i] || ""; });
      });
    });
  }
  label();
  document.addEventListener("htmx:afterSettle", label);
  // The page of events is filled from a stream, as text.
  var stream = document.getElementById("stream");
  var told = document.getElementById("told");
  if (!stream || !told) { return; }
  var source = new EventSource(stream.dataset.stream);
  function add(event) {
    var what = JSON.parse(event.data);
    var row = document.createElement("tr");
    [what.at.replace("T", " ").replace("Z", ""), what.kind, what.on, what.generation || "", what.explanation || ""].forEach(function (text, i) {
      var cell = document.createElement("td");
      cell.textContent = text;
      cell.dataset.label = ["At", "Event", "On", "Generation", "What it says"][i];
      if (i === 3) { cell.className = "num"; }
      row.appendChild(cell);
    });
    told.insertBefore(row, told.firstChild);
    while (told.childNodes.length > 200) { told.removeChild(told.lastChild); }
  }
  source.addEventListener("begin", function () { stream.textContent = "Following. Times are UTC."; });
  source.addEventListener("event", add);
  source.addEventListener("problem", function (event) {
    stream.textContent = JSON.parse(event.data).explanation;
    source.close();
  });
  source.onerror = function () {
    stream.textContent = source.readyState === EventSource.CLOSED // it was refused, and the browser does not try again
      ? "Nothing is followed: your login has ended, or too many follow events. Load the page again."
      : "The stream was interrupted; connecting again.";
  };
})();
