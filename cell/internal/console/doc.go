// Package console is a console for browsers: pages that show what a cell does, and forms by which operators act on it. A replica
// serves it at its http port. Only package cell uses it.
//
// The rule it upholds: the console is a client. Whatever it shows and does it asks of the cell, by package client, over
// connections that are those of its visitor (Door.Dial): the services check his rights, bound him and record what he does
// as they do with chubbyctl. The console itself decides who somebody is, by the same certificates and tokens as the port for clients,
// and nothing about what he may do. That it leaves out the buttons of operators for others is a courtesy.
//
// It knows neither Raft nor the state of the replica: a replica that is not the master shows what the master says, because package
// client finds the master.
//
// # Bounds
//
// Requests that are served at a time, their sizes and times, logins, visitors (each with a client.Cell), streams of events and
// the rows of a page all have a bound, most in console.go. The cell is asked for no more rows than a page shows. What was looked up for a
// page is forgotten with it, except for the figures of the last minutes of a visitor who keeps a page open, from which plots are drawn.
//
// # Browsers
//
// A page has no script, style or picture of its own in it, and the browser is told to run none (Content-Security-Policy). All texts
// of the cell go through html/template. A form that acts has a token which only the console's own pages have, and the browser has to
// say that the form is the console's (net/http.CrossOriginProtection). Where nobody logs in, the Host of a request has to be this
// machine's: else a page of somebody else's, whose name is made to mean this machine, could act.
//
// # Concurrency
//
// A Console is for any goroutine. It has no goroutines of its own but those of each visitor's client.Cell, which Close waits
// for. Its mutexes, visitors.mu, logins.mu, series.mu and strangers.mu, are never held together, nor across I/O.
package console
