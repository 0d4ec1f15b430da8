package diagnosis

// outdated says of which fields of Everynode's kinds the API knows nothing: it drops what is written there.
func outdated(f *findings, c *Cluster) {
	if len(c.Lacking) > 0 {
		f.add(Problem, c.Server, c.Program+" controller --print-crds | "+c.Kubectl+" apply -f -",
			"its definitions of Everynode's kinds are older than this program, and drop what is written into %s",
			some(c.Lacking))
	}
}
