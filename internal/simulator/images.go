package simulator

import (
	"fmt"
	"path"
	"strings"
)

// DefaultImages makes an image that is called "fail", or has the tag "fail", impossible to pull; every other is there.
func DefaultImages(image string) Image {
	name, tag, _ := strings.Cut(path.Base(image), ":")
	if name == "fail" || tag == "fail" {
		return Image{
			PullError: fmt.Sprintf("failed to pull and unpack image %q: simulated images called fail do not exist", image),
		}
	}
	return Image{}
}
