package survey

import (
	"fmt"
	"strings"

	"github.com/everynode/everynode/internal/untrusted/plaintext"
)

// Width is how wide lines for people may be.
const Width = 80

// Wrap breaks text between words into lines, the later ones further in. What would do
// something in a terminal is spelled out: some of the text is from logs and events.
func Wrap(text, indent string) string {
	return strings.Join(plaintext.Wrap(text, Width, indent, indent+"    "), "\n") + "\n"
}

// Count writes how many there are of something: "1 node", "1,000 nodes".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Number(n) + " " + what + "s"
}

// Number writes a number with commas between thousands.
func Number(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", Number(n/1000), n%1000)
}
