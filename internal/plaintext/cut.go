package plaintext

import "strings"

// Cut shortens a text of more than so many bytes, at a letter, and puts the mark behind what is left.
func Cut(text string, most int, mark string) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + mark
}
