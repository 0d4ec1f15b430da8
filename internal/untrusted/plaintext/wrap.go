package plaintext

import (
	"strings"
	"unicode/utf8"
)

// Wrap breaks text between words into lines of at most that many characters, a longer word alone on its line. What
// would do something in a terminal is spelled out. The first line begins with first, the others with rest.
func Wrap(text string, width int, first, rest string) (lines []string) {
	line, length := first, 0
	for _, word := range strings.Fields(Escape(text)) {
		switch more := utf8.RuneCountInString(word); {
		case length == 0:
			line, length = line+word, utf8.RuneCountInString(line)+more
		case length+1+more > width:
			lines = append(lines, line)
			line, length = rest+word, utf8.RuneCountInString(rest)+more
		default:
			line, length = line+" "+word, length+1+more
		}
	}
	return append(lines, line)
}
