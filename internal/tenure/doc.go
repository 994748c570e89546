// Package tenure runs a command while something is held in a cell, and stops it before another can have that,
// for the verbs 'VERB PATH -- CMD' of chubbyctl and its programs. Package supervise runs and ends the command;
// this one decides how long it may run, what it and the user learn, and what its end means.
package tenure
