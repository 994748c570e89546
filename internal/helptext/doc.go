// Package helptext writes the help of a program's commands so that it fits the terminal: no line is wider, and
// what goes on in the next line begins under itself. The text is that of the commands as they were made, so that
// pages which are generated of it are the same everywhere. It knows nothing of what the commands do; main
// packages call it once, when they have put their commands together.
package helptext
