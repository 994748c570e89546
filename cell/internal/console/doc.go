// Package console is a console for browsers: its pages show what a cell does, and its forms let operators act.
// A replica serves it at its http port. Only package cell uses it.
//
// The console is a client. It asks the cell for everything, by package client, over connections of its visitor
// (Door.Dial): the services check the visitor's rights, limit them and record acts, as with chubbyctl. The
// console identifies a caller by the certificates and tokens of the client port, but decides nothing about
// rights. It hides the operators' buttons from others only as a courtesy.
//
// It knows neither Raft nor the replica's state: package client finds the master, so each replica shows what
// the master says.
//
// # Limits
//
// Requests at a time, their sizes and times, logins, visitors (each with a client.Cell), streams of events and
// the rows of a page are limited, most in console.go. The console asks for no more rows than a page shows. It
// keeps nothing of a page, except the figures of the last minutes while a visitor has a page open, for plots.
//
// # Browsers
//
// No page contains a script, style or picture, and Content-Security-Policy forbids them. All texts of the cell
// go through html/template. A form that acts has a token that only the console's pages have, and the browser
// must say that the form is the console's (net/http.CrossOriginProtection). Without logins, the Host of a
// request must be this machine's: else another site, whose name resolves to this machine, could act.
//
// # Concurrency
//
// A Console is safe for concurrent use. Its goroutines are those of each visitor's client.Cell, for which Close
// waits, and one of each overview that is drawn, which ends with it. Its mutexes, visitors.mu, logins.mu, series.mu and places.mu, are never held together, nor across I/O.
package console
