package main

import (
	"regexp"
	"slices"
	"strings"
)

// What differs between two runs: numbers, times, sizes and identities. All of them have a digit.
var (
	varies = regexp.MustCompile(`[A-Za-z0-9_.:+-]*[0-9]([A-Za-z0-9_.:+-]*[A-Za-z0-9])?`)
	digest = regexp.MustCompile(`^([0-9a-f]{6}|devel)$`) // the beginning of a checksum may have no digit, nor has the version of a build
	rest   = regexp.MustCompile(`([A-Za-z0-9_=-])\.\.\.`)
	named  = regexp.MustCompile(`\br[0-9]\b`)
)

// shape is a line without what differs between two runs.
func shape(line string) string {
	words := strings.Fields(line)
	for i, word := range words {
		if digest.MatchString(word) {
			words[i] = "0"
			continue
		}
		words[i] = varies.ReplaceAllStringFunc(word, func(s string) string {
			if named.MatchString(s) && len(s) == 2 {
				return "r0"
			}
			return "0"
		})
	}
	return strings.Join(words, " ")
}

// missing returns the lines of a page's output that a command did not print. They may come in another order, with
// other numbers and other spaces; "..." stands for any text, and at the end of a word for a number or a time.
func missing(want, got string) []string {
	var shapes, lines []string
	for line := range strings.Lines(got) {
		shapes = append(shapes, shape(line))
	}
	for line := range strings.Lines(want) {
		pattern := shape(rest.ReplaceAllString(line, "${1}9"))
		if pattern == "" || pattern == "..." {
			continue
		}
		parts := strings.Split(pattern, "...")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		like := regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
		at := slices.IndexFunc(shapes, like.MatchString)
		if at < 0 {
			lines = append(lines, strings.TrimRight(line, "\n"))
			continue
		}
		shapes = slices.Delete(shapes, at, at+1)
	}
	return lines
}
