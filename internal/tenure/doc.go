// Package tenure runs a command while something is held in a cell, and stops it before another can have that: it is what chubbyctl and
// the programs of its verbs do for 'VERB PATH -- CMD'. Package supervise runs and ends the command; here is until when it may run, what
// it and the user are told, and what its end means.
package tenure
