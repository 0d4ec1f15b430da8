package devices

import (
	"fmt"
	"testing"
)

// BenchmarkOneNodeOfMany chooses a device of one node, with that many nodes that have two each and one that is taken.
func BenchmarkOneNodeOfMany(b *testing.B) {
	for _, nodes := range []int{100, 50000} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			known := book()
			for i := range nodes {
				name := fmt.Sprint("n", i)
				known.SetSlice(offer(name, 2))
				c := claim("of-" + name)
				known.SetClaim(c)
				gifts, err := known.Gifts(user(name, c.Name), node(name))
				if err != nil {
					b.Fatal(err)
				}
				known.SetClaim(gifts[0].Next)
			}
			known.SetClaim(claim("wanted"))
			for b.Loop() {
				if text := known.Ask(user("p", "wanted")).Missing(node("n7")); text != "" {
					b.Fatal(text)
				}
			}
		})
	}
}
