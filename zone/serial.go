package zone

// serialAfter tells whether serial a comes after b (RFC 1982 §3.2). Of two that are half the circle apart neither does.
func serialAfter(a, b uint32) bool { return a != b && a-b < 1<<31 }

// Serials returns the serial numbers of all zones by apex. Without reverse ranges, the one that the zones of all
// addresses share stands under Root.
func (v *View) Serials() map[Name]uint32 {
	serials := make(map[Name]uint32, len(v.zones)+1)
	for _, z := range v.zones {
		serials[z.apex] = z.serial
	}
	if v.addresses != nil {
		serials[Root] = v.addresses.serial
	}
	return serials
}

// serial returns the first serial number of a zone.
func (c *Config) serial(apex Name) uint32 {
	last, goesOn := c.Continues[apex]
	if goesOn && !serialAfter(c.Serial, last) {
		return last + 1
	}
	return c.Serial
}
