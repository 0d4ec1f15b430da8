package definitions

// Case is an object, and whether it is good.
type Case struct {
	Name, Text string
	Good       bool
}

// Cases are the objects of TestBothTakeAndRefuseTheSame, by definition.
func Cases() (out [4][]Case) {
	for i, cases := range [][]objectCase{policyCases(), rolloutCases(), variantCases(), startupCases()} {
		for _, c := range cases {
			out[i] = append(out[i], Case{c.name, c.text, c.good})
		}
	}
	return out
}
