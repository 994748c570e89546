// Command console visits the console of a real cell with a real browser (Chromium), as people do, and reports what is wrong with it. Every page
// is looked at wide and narrow, dark and light, with the mouse and by keyboard; every act of an operator is done; the master is
// killed while a page is open; somebody logs in with a token. It fails at any error that the browser reports, at anything that axe-core calls serious
// or critical, at a page that is wider than a telephone, and at a first paint that is later than 300 ms.
// With -large it measures instead, in a cell with so many sessions and locks, when each page is painted, and what an open page costs the replica that serves it and the
// master, and fails above limits. That takes a machine with nothing else to do.
// With -pictures it writes pictures of the pages.
//
// Run it by make verify-console. It is a module of its own: nothing else here needs a browser.
package main
