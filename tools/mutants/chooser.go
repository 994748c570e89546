package main

// chooserSource is compiled into each mutated package: its functions ask whether a mutant is chosen, and
// record that it was reached. Its names have a form that no other name of the project has.
const chooserSource = `
import ("cmp"; "os"; "strconv"; "sync/atomic")

type mut_integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

var mut_chosen, _ = strconv.Atoi(os.Getenv("CHUBBY_MUTANT"))

var mut_trace = func() *os.File {
	name := os.Getenv("CHUBBY_MUTANT_TRACE")
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	return f
}()

func mut_on(id int) bool {
	if mut_trace != nil && !mut_reached[id].Swap(true) {
		mut_trace.WriteString(strconv.Itoa(id) + "\n")
	}
	return mut_chosen == id
}

func mut_pick[T any](id int, original, other T) T {
	if mut_on(id) {
		return other
	}
	return original
}

func mut_zero[T any](id int, v T) T { return mut_pick(id, v, *new(T)) }

func mut_less[T cmp.Ordered](id int, a, b T) bool           { return mut_pick(id, a < b, a <= b) }
func mut_less_equal[T cmp.Ordered](id int, a, b T) bool     { return mut_pick(id, a <= b, a < b) }
func mut_greater[T cmp.Ordered](id int, a, b T) bool        { return mut_pick(id, a > b, a >= b) }
func mut_greater_equal[T cmp.Ordered](id int, a, b T) bool  { return mut_pick(id, a >= b, a > b) }
func mut_add[T mut_integer](id int, a, b T) T               { return mut_pick(id, a+b, a-b) }
func mut_sub[T mut_integer](id int, a, b T) T               { return mut_pick(id, a-b, a+b) }
func mut_mul[T mut_integer](id int, a, b T) T               { return mut_pick(id, a*b, a+b) }
func mut_and[T mut_integer](id int, a, b T) T               { return mut_pick(id, a&b, a|b) }
func mut_or[T mut_integer](id int, a, b T) T                { return mut_pick(id, a|b, a&b) }
func mut_xor[T mut_integer](id int, a, b T) T               { return mut_pick(id, a^b, a|b) }
func mut_and_not[T mut_integer](id int, a, b T) T           { return mut_pick(id, a&^b, a&b) }

func mut_quo[T mut_integer](id int, a, b T) T {
	if mut_on(id) {
		return a * b
	}
	return a / b
}

func mut_rem[T mut_integer](id int, a, b T) T {
	if mut_on(id) {
		return a / b
	}
	return a % b
}

func mut_min[T cmp.Ordered](first, second int, a, b T) T {
	return mut_pick(second, mut_pick(first, min(a, b), a), b)
}

func mut_max[T cmp.Ordered](first, second int, a, b T) T {
	return mut_pick(second, mut_pick(first, max(a, b), a), b)
}
`
