package hostile

// source hands out the fuzzer's bytes as decisions. When they are used up, all
// decisions are the first choice, so that short inputs are simple ones.
type source struct{ data []byte }

func (s *source) empty() bool { return len(s.data) == 0 }

func (s *source) byte() int {
	if s.empty() {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return int(b)
}

// below returns a number in [0, n).
func (s *source) below(n int) int {
	switch {
	case n <= 1:
		return 0
	case n <= 256:
		return s.byte() % n
	default:
		return (s.byte()<<8 | s.byte()) % n
	}
}

// oneIn is true about once in n times, and never when nothing is left.
func (s *source) oneIn(n int) bool { return s.below(n) == n-1 }

// rest returns up to n of the bytes that are left as they are.
func (s *source) rest(n int) []byte {
	n = min(n, len(s.data))
	out := s.data[:n]
	s.data = s.data[n:]
	return out
}

func pick[T any](s *source, list []T) T { return list[s.below(len(list))] }
