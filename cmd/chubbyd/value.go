package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// value is the possible values of a setting. Its description in docs/chubbyd.md derives from its check.
type value struct {
	takes    string                        // the possible texts
	words    []string                      // those that shells offer
	initial  func(settings) string         // the text of the default, or nil
	set      func(*settings, string) error // takes a text, or returns its fault
	isSwitch bool                          // the flag needs no value
}

// special is a value with its own parser.
func special(takes, initial string, set func(*settings, string) error, words ...string) value {
	v := value{takes: takes, words: words, set: set}
	if initial != "" {
		v.initial = func(settings) string { return initial }
	}
	return v
}

// none is the value for no file.
const none = "none"

// file is the name of a file, opened at the replica's start.
func file(at func(*settings) *string) value {
	return special("none, or a file", none, func(s *settings, text string) error {
		switch text {
		case "":
			return errors.New("is empty; name a file, or say none")
		case none:
			text = ""
		}
		*at(s) = text
		return nil
	}, none)
}

func text(at func(*settings) *string) value {
	return special("none, or a text", none, func(s *settings, text string) error {
		switch text {
		case "":
			return errors.New("is empty; say none if there is none")
		case none:
			text = ""
		}
		*at(s) = text
		return nil
	}, none)
}

// switched is true or false.
func switched(at func(*settings) *bool) value {
	return value{
		takes:    "true or false",
		words:    []string{"true", "false"},
		initial:  func(s settings) string { return strconv.FormatBool(*at(&s)) },
		isSwitch: true,
		set: func(s *settings, text string) error {
			on, err := strconv.ParseBool(text)
			if err != nil {
				return fmt.Errorf("%q is neither true nor false", text)
			}
			*at(s) = on
			return nil
		},
	}
}

// oneOf is one of some words; what says what they name.
func oneOf[T ~string](what string, at func(*settings) *T, words ...T) value {
	v := value{initial: func(s settings) string { return string(*at(&s)) }}
	for _, word := range words {
		v.words = append(v.words, string(word))
	}
	v.takes = strings.Join(v.words, " or ")
	v.set = func(s *settings, text string) error {
		for _, word := range words {
			if text == string(word) {
				*at(s) = word
				return nil
			}
		}
		return fmt.Errorf("%q is not a %s: want %s", text, what, v.takes)
	}
	return v
}

func duration(minimum, maximum time.Duration, at func(*settings) *time.Duration) value {
	return value{
		takes:   shortDuration(minimum) + " to " + shortDuration(maximum),
		initial: func(s settings) string { return shortDuration(*at(&s)) },
		set: func(s *settings, text string) error {
			d, err := time.ParseDuration(text)
			if err != nil {
				return fmt.Errorf("%q is not a duration: want a number and a unit, as in 500ms or 2s", text)
			}
			if d < minimum || d > maximum {
				return fmt.Errorf("%v is outside %v to %v", d, minimum, maximum)
			}
			*at(s) = d
			return nil
		},
	}
}

// durationOrZero is a duration, or 0 for none.
func durationOrZero(minimum, maximum time.Duration, at func(*settings) *time.Duration) value {
	v := duration(minimum, maximum, at)
	v.takes = "0, or " + v.takes
	nonZero := v.set
	v.set = func(s *settings, text string) error {
		if text == "0" {
			*at(s) = 0
			return nil
		}
		return nonZero(s, text)
	}
	return v
}

// shortDuration formats a duration without zeros: 10m, not 10m0s.
func shortDuration(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	return text
}

func count(minimum, maximum int, at func(*settings) *int) value {
	return value{
		takes:   fmt.Sprintf("a whole number from %d to %d", minimum, maximum),
		initial: func(s settings) string { return strconv.Itoa(*at(&s)) },
		set: func(s *settings, text string) error {
			n, err := strconv.Atoi(text)
			if err != nil || n < minimum || n > maximum {
				return fmt.Errorf("%q is not a whole number from %d to %d", text, minimum, maximum)
			}
			*at(s) = n
			return nil
		},
	}
}

func number(minimum, maximum float64, at func(*settings) *float64) value {
	text := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	v := value{
		takes:   fmt.Sprintf("a number from %s to %s", text(minimum), text(maximum)),
		initial: func(s settings) string { return text(*at(&s)) },
	}
	v.set = func(s *settings, text string) error {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !(n >= minimum && n <= maximum) { // fails for NaN, too
			return fmt.Errorf("%q is not %s", text, v.takes)
		}
		*at(s) = n
		return nil
	}
	return v
}
