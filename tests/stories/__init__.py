"""Jobs of people who use nearfar for the first time: their files, the commands they type, and what they want."""
