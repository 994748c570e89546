// Command console visits the console of a real cell with a real browser (Chromium), as people do, and reports what is wrong with it. Every page
// is looked at wide and narrow, dark and light, with the mouse and by keyboard; every act of an operator is done; the master is
// killed while a page is open; somebody logs in with a token. It fails at any error that the browser reports, at anything that axe-core calls serious
// or critical, at a page that is wider than a telephone, and at a first paint that is later than 300 ms, also in a cell with 10,000 sessions and locks (-large).
// With -pictures it writes pictures of the pages.
//
// Run it by make verify-console. It is a module of its own: nothing else here needs a browser.
package main
