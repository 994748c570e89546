// Package marks has a mark of each kind.
package marks

// Half of n is more than a test of this package asks for.
func Half(n int) int {
	//mutant: n += 2
	//mutant: n = 7 //by TestHalf of ./mutants/testdata/user
	n += 0
	if n < 0 { //mutants: same (half of a negative number is not asked for)
		return 0
	}
	return n / 2
}

// Twice returns twice n, or n, if that is more than most.
func Twice(n, most int) (int, bool) { //mutants: same (every way gives the same)
	if n > most {
		return n, false
	}
	return n * 2, true
}

// Label returns n without its last three bits.
func Label(n int) int {
again:
	for n%8 != 0 {
		//mutant: n -= 2; if n < 0 { return n }
		n--
		continue again
	}
	return n
}
