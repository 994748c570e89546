package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
)

// value is the possible values of a setting. Its description in docs/chubbyd.md derives from its check.
type value struct {
	takes    string             // the possible texts
	words    []string           // those that shells offer
	initial  string             // the text of the default; "" if the setting is required
	take     func(string) error // takes a text, or returns its fault
	isSwitch bool               // the flag needs no value
}

// special is a value with its own parser.
func special(takes, initial string, take func(string) error, words ...string) value {
	return value{takes: takes, words: words, initial: initial, take: take}
}

// none is the value for no file, and for other things that may be absent.
const none = "none"

// checked is a text that check accepts. The word absent, if there is one, is the default, and stands for the empty text.
func checked(takes, absent string, at *string, check func(string) error, words ...string) value {
	take := func(text string) error {
		if absent != "" && text == absent {
			text = ""
		} else if err := check(text); err != nil {
			return err
		}
		*at = text
		return nil
	}
	if absent != "" {
		words = append([]string{absent}, words...)
	}
	return special(takes, absent, take, words...)
}

// given returns a check that a text is not empty.
func given(advice string) func(string) error {
	return func(text string) error {
		if text == "" {
			return errors.New("is empty; " + advice)
		}
		return nil
	}
}

// nameOf is the name of a cell or a replica.
func nameOf(of, example string, at *string) value {
	const takes = "letters, digits, '-', '_' and '.'"
	return checked(takes, "", at, func(text string) error {
		if !api.ValidCell(text) {
			return fmt.Errorf("%q cannot be a %s's name: use %s%s", text, of, takes, example)
		}
		return nil
	})
}

// file is the name of a file, opened at the replica's start.
func file(at *string) value {
	return checked("none, or a file", none, at, given("name a file, or say none"))
}

func text(at *string) value {
	return checked("none, or a text", none, at, given("say none if there is none"))
}

// parsed is a value of another type.
func parsed[T any](takes string, at *T, format func(T) string, parse func(string) (T, error), words ...string) value {
	return special(takes, format(*at), func(text string) error {
		value, err := parse(text)
		if err == nil {
			*at = value
		}
		return err
	}, words...)
}

// switched is true or false.
func switched(at *bool) value {
	v := parsed("true or false", at, strconv.FormatBool, func(text string) (bool, error) {
		on, err := strconv.ParseBool(text)
		if err != nil {
			err = fmt.Errorf("%q is neither true nor false", text)
		}
		return on, err
	}, "true", "false")
	v.isSwitch = true
	return v
}

// oneOf is one of some words; what says what they name.
func oneOf[T ~string](what string, at *T, words ...T) value {
	var texts []string
	for _, word := range words {
		texts = append(texts, string(word))
	}
	takes := strings.Join(texts, " or ")
	return parsed(takes, at, func(word T) string { return string(word) }, func(text string) (T, error) {
		if !slices.Contains(texts, text) {
			return "", fmt.Errorf("%q is not a %s: want %s", text, what, takes)
		}
		return T(text), nil
	}, texts...)
}

func duration(minimum, maximum time.Duration, at *time.Duration) value {
	return parsed(shortDuration(minimum)+" to "+shortDuration(maximum), at, shortDuration, func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		switch {
		case err != nil:
			return 0, fmt.Errorf("%q is not a duration: want a number and a unit, as in 500ms or 2s", text)
		case d < minimum || d > maximum:
			return 0, fmt.Errorf("%v is outside %v to %v", d, minimum, maximum)
		}
		return d, nil
	})
}

// durationOrZero is a duration, or 0 for none.
func durationOrZero(minimum, maximum time.Duration, at *time.Duration) value {
	v := duration(minimum, maximum, at)
	v.takes = "0, or " + v.takes
	nonZero := v.take
	v.take = func(text string) error {
		if text == "0" {
			*at = 0
			return nil
		}
		return nonZero(text)
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

func count(minimum, maximum int, at *int) value {
	takes := fmt.Sprintf("a whole number from %d to %d", minimum, maximum)
	return parsed(takes, at, strconv.Itoa, func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < minimum || n > maximum {
			return 0, fmt.Errorf("%q is not %s", text, takes)
		}
		return n, nil
	})
}

func number(minimum, maximum float64, at *float64) value {
	format := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	takes := fmt.Sprintf("a number from %s to %s", format(minimum), format(maximum))
	return parsed(takes, at, format, func(text string) (float64, error) {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !(n >= minimum && n <= maximum) { // fails for NaN, too
			return 0, fmt.Errorf("%q is not %s", text, takes)
		}
		return n, nil
	})
}

func level(at *slog.Level) value {
	return parsed("debug, info, warn or error", at, func(l slog.Level) string { return strings.ToLower(l.String()) }, func(text string) (l slog.Level, err error) {
		if l.UnmarshalText([]byte(text)) != nil {
			err = fmt.Errorf("%q is not a level: want debug, info, warn or error", text)
		}
		return l, err
	}, "debug", "info", "warn", "error")
}
