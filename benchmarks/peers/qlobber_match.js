// Match topics against wildcard patterns with qlobber, the npm package: how long, how many matches.
// node qlobber_match.js FOLDER-WITH-NODE_MODULES PATTERNS-FILE TOPICS-FILE   (one a line)
const fs = require("fs");
const path = require("path");
const { createRequire } = require("module");

const [folder, patterns, topics] = process.argv.slice(2);
const { Qlobber } = createRequire(path.join(folder, "x.js"))("qlobber");
const lines = (file) => fs.readFileSync(file, "utf8").split("\n").filter((line) => line);

const matcher = new Qlobber({ separator: ".", wildcard_one: "*", wildcard_some: "#" });
lines(patterns).forEach((pattern, number) => matcher.add(pattern, number));
const events = lines(topics);
let matches = 0;
for (const topic of events.slice(0, 100)) matcher.match(topic);
const began = process.hrtime.bigint();
for (const topic of events) matches += matcher.match(topic).length;
const seconds = Number(process.hrtime.bigint() - began) / 1e9;
console.log(JSON.stringify({ seconds, matches }));
